"""The coordinating office's part: ``conducting`` sees a run through over NVFlare's admin API, and
``rehearsal`` plays all parties on one machine, each in processes of its own.
"""

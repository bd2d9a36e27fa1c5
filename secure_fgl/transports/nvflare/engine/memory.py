"""What NVFlare's processes are told, so that their memory stays flat (docs/adr/0080).

NVFlare takes a buffer of a whole piece for each message that it sends, however short, and keeps it
in a circle of references until Python looks for these; a thread sleeps for each answer that came,
for as long as the sender may send it again; and glibc keeps what was freed in a heap for every few
threads. So pieces are smaller, a window and its acknowledgements with them, an answer is not
remembered for longer than our own retries need, and large buffers go back to the kernel at once.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COMMUNICATION", "COMMUNICATION_FILE", "MEMORY"]

MEMORY: Mapping[str, str] = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""Environment of the engine's processes: glibc's heaps (mallopt(3)); 131,072 bytes are its defaults
of both thresholds, which stand still once they are given. Other C libraries pay no heed to them."""

COMMUNICATION_FILE = "comm_config.json"
"""NVFlare's name of the file below ``local`` in which a kit says how it sends."""

COMMUNICATION: Mapping[str, float] = {
    "streaming_chunk_size": 1 << 18,
    "streaming_ack_interval": 1 << 19,
    "streaming_window_size": 1 << 21,
    "streaming_retry_wait": 5.0,
    "streaming_retry_timeout": 10.0,
}
"""How a kit sends: bytes of a piece, of what is acknowledged at a time, of what may be under way;
seconds after which a piece is sent again, and until when. What is not through by then is lost, and
`pushed.carrier` sends it again. The defaults (1, 16 and 64 MB; 5 s and 60 s) call a link too slow
that takes 64 MB in 65 s; these, one that takes 2 MB in 15 s, which is slower."""

"""Headless Chromium for tests of pages: one process, driven over two pipes, no package needed."""

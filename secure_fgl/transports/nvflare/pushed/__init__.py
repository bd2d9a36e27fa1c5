"""Exchanges over NVFlare's auxiliary requests: what pushes them, and what takes them at a site."""

"""Runs that lie in a folder: listed, compared two at a time, and deleted, their keys first."""

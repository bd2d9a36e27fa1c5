"""Cohorts drawn by lot: the draw at aggregator and clients, and what both know of it then."""

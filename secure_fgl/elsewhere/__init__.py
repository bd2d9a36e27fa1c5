"""Attacks where no whole run lies: in a rehearsal, thrown away after it, and at one site"""

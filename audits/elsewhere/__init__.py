"""Attacks elsewhere than on a whole run: rehearsed before it, or made by sites on their own side"""

"""Entities/s from landed changes."""

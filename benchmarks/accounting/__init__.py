"""Accountants side by side."""

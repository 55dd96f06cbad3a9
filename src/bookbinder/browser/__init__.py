"""Chromium, and a server of a built site to open in it."""

"""Finish a built site: downloads for readers, and what verified each page.

This works on the finished HTML and on the pages' Markdown, whichever engine built one
from the other. ``publish`` defines the order.
"""

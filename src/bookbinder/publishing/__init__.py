"""What a reader takes away from the built site, and what verified it.

It works on the finished HTML and on the pages' Markdown, whatever engine built the one
from the other. ``publish`` says in which order.
"""

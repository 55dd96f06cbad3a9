"""The graders of the exercises, one module for each chapter that has some.

A grader takes an answer and returns ``"right"``, or raises an ``AssertionError`` that
says what is wrong with it. All can be imported from ``transformer_book``.
"""

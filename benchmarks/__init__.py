"""Measurements of this toolkit, most of them beside other libraries.

Each folder has its scripts, started as ``python benchmarks/FOLDER/NAME.py``; ``--help`` lists their options.
"""

"""Measure the machine while a job runs, and judge whether it could have shaped the job's result. Imports
NumPy.
"""

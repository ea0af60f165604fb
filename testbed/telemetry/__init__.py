"""Telemetry of what the machine did while a job ran, and whether that could have shaped the job's result.
Imports NumPy.
"""

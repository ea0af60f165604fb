"""The queue of jobs, and the policy that decides slot by slot who starts when (docs/scheduling.md). What a
job is and how it lives is testbed/jobs/'s, below.
"""

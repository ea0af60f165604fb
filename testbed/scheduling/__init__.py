"""The interface of policies: the state that they get and the decision that they return, namely jobs,
circuits, rates and switches in the notation of P4INC-AOI, section IV. Pure; contains no policy.
"""

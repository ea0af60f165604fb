"""Background traffic: which flows a file asks for, and what became of them. Pure; imports no mechanism."""

"""The data planes: programs and their control planes, one folder each."""

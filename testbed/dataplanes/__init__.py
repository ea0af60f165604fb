"""The data planes: programs and their control planes, a folder for each."""

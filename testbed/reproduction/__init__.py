"""What figures of any paper share: runs in several processes, and the words in which numbers are compared."""

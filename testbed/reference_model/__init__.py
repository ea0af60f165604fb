"""The reference model of the packet programs, with which every data plane is compared. Pure."""

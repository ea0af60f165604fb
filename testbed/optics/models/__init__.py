"""The models that the testbed has, a file each: `testbed.discovery.optical` finds whichever lie here."""

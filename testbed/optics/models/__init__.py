"""The models that the testbed has, a file each: `testbed.plugins.optical` finds whichever lie here."""

"""The built-in optical models, one file each. `testbed.plugins.optical` loads every module of this folder."""

"""The configuration file, its variables and secrets, and the plug-ins that it names."""

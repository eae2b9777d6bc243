"""A trained text model for other runtimes. Whatever is written was compared with the model first."""

"""Provisioners: the four verbs on clusters, behind one protocol."""

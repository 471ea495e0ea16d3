"""The command line. It speaks HTTP only; `up`, `down`, `demo` and `db` are what runs a service on this machine."""

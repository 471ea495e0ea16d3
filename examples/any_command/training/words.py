"""Words of one's own."""


def greet(colour: str) -> str:
    return f"a greeting in {colour}\n"

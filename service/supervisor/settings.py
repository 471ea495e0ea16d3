"""The service's settings as the user meant them: a wrong variable is named, without its value."""

from __future__ import annotations

from pydantic import ValidationError

from service.settings import Settings


class SettingsInvalid(Exception):
    """`names` are the environment variables that are wrong, each with what is wrong."""

    def __init__(self, names: tuple[tuple[str, str], ...]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in names))
        self.names = names


def load_settings() -> Settings:
    """From the environment. Errors: SettingsInvalid."""
    try:
        return Settings()
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        names = tuple((f"GODWIT_{'_'.join(str(p) for p in item['loc']).upper()}", item["msg"]) for item in found)
        raise SettingsInvalid(names) from None

"""Where the service is and with which key: the environment first, then what `godwit login` or `godwit up` saved.

The command line's own variables are read here; `service.settings` reads those of the service.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from service.cli.errors import BadInput, NotSignedIn

URL_VARIABLE = "GODWIT_URL"
KEY_VARIABLE = "GODWIT_API_KEY"
_SIGN_IN = "run 'godwit up' to start a service here, or 'godwit login URL' to use another"


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    url: str
    key: SecretStr


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    url: str
    key: str = field(repr=False)


def config_path(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "godwit" / "config.json"


def load_account(environment: Mapping[str, str]) -> Account:
    """Errors: NotSignedIn when either half is unknown; BadInput for a file that cannot be read.

    A key that was saved for one URL is never sent to another.
    """
    saved = load_saved(environment)
    url = environment.get(URL_VARIABLE) or (saved.url if saved else None)
    key = environment.get(KEY_VARIABLE) or (saved.key if saved and url == saved.url else None)
    if url is None:
        raise NotSignedIn("no service is known yet", remedy=_SIGN_IN)
    if key is None:
        raise NotSignedIn(f"no key is known for {url}", remedy=f"run 'godwit login {url}', or set {KEY_VARIABLE}")
    return Account(url=check_url(url), key=check_key(key))


def load_saved(environment: Mapping[str, str]) -> Account | None:
    path = config_path(environment)
    try:
        saved = _Saved.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise BadInput(f"{path} cannot be read", remedy=f"remove it, then {_SIGN_IN}") from error
    return Account(url=saved.url, key=saved.key.get_secret_value())


def save_account(account: Account, environment: Mapping[str, str]) -> Path:
    """Only its owner can read the file."""
    path = config_path(environment)
    text = json.dumps({"url": account.url, "key": account.key}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".tmp")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", remedy="set XDG_CONFIG_HOME") from error
    return path


def check_url(url: str) -> str:
    url = url.strip().rstrip("/")
    rest = url.removeprefix("https://") if url.startswith("https://") else url.removeprefix("http://")
    if rest == url or not rest or "@" in rest or not url.isascii() or any(c.isspace() or ord(c) < 33 for c in url):
        raise BadInput(f"{url[:200]!r} is not a service's URL", remedy="write it like https://godwit.example.com")
    return url


def check_key(key: str) -> str:
    """The form only, without a word of the key in the error."""
    if not (key.startswith("gdw_") and key.isascii() and key.isprintable() and len(key) <= 256 and " " not in key):
        raise BadInput("that is not an API key", remedy="keys look like gdw_<id>_<secret>")
    return key

"""Regular expressions with look-around, named groups and a replacement function."""
import re


def strong(password):
    return bool(re.fullmatch(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)(?!.*\s).{8,}", password))


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def mask(text):
    return re.sub(r"\b(\d{4})-?\d{4}-?\d{4}-?(\d{4})\b", lambda m: f"{m[1]}-****-****-{m[2]}", text)


assert strong("Passw0rdX") and not strong("password1") and not strong("Sh0rt") and not strong("Has Space1")
assert snake("getHTTPResponseCode") == "get_http_response_code"
assert snake("already_snake") == "already_snake"
assert mask("card 1234-5678-9012-3456, id 42") == "card 1234-****-****-3456, id 42"
assert mask("1234567890123456") == "1234-****-****-3456"
assert re.split(r"\s*[,;]\s*", "a , b;c") == ["a", "b", "c"]

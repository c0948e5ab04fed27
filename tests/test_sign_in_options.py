"""Settings of the ways to sign in: off by default, refused if they are incomplete or would let everyone in."""

import pytest

from appliance.command_line import load
from appliance.engine.errors import StartError
from appliance.sign_in_options import SignInOptions

PUBLIC = {"ROCKETBOX_PUBLIC_URL": "https://mq.example.org"}
PROXY = {
    "ROCKETBOX_CONSOLE_PROXY_USER_HEADER": "X-Remote-User",
    "ROCKETBOX_CONSOLE_PROXY_TRUSTED_ADDRESSES": "10.0.0.2, fd00::/64",
}
OIDC = PUBLIC | {
    "ROCKETBOX_CONSOLE_OIDC_ISSUER": "https://id.example.org/realms/staff",
    "ROCKETBOX_CONSOLE_OIDC_CLIENT_ID": "rocketbox",
}


_ADDRESSES = ("10.0.0.2", "10.0.0.3", "fd00::7", "fd01::7", "::ffff:10.0.0.2", "x", "")


def sign_in(environment) -> SignInOptions:
    return load([], environment)[1].sign_in


def test_both_ways_are_off_by_default():
    assert sign_in({}) == SignInOptions(None, None)


def test_a_proxy_is_trusted_by_its_address():
    options = sign_in(PROXY | {"ROCKETBOX_CONSOLE_PROXY_CREATE_ROLE": "viewer"}).proxy
    assert (options.header, options.create_role) == ("x-remote-user", "viewer")
    found = {
        one: options.trusts(one) for one in ("10.0.0.2", "10.0.0.3", "fd00::7", "fd01::7", "::ffff:10.0.0.2", "x", "")
    }
    assert [one for one, trusted in found.items() if trusted] == ["10.0.0.2", "fd00::7", "::ffff:10.0.0.2"]


def test_a_provider_from_a_file(tmp_path):
    file = tmp_path / "rocketbox.toml"
    file.write_text(
        '[console]\npublicUrl = "https://mq.example.org"\noidcIssuer = "https://id.example.org"\n'
        'oidcClientId = "rocketbox"\n'
        'oidcRoles = ["mq-admins=admin", "a=b=viewer"]\noidcAllowedDomains = ["example.org"]\n'
    )
    options = load(["-c", str(file)], {})[1].sign_in.oidc
    assert options.roles == (("mq-admins", "admin"), ("a=b", "viewer"))
    assert (options.domains, options.default_role) == (("example.org",), "")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"ROCKETBOX_CONSOLE_PROXY_USER_HEADER": "X-Remote-User"}, "needs both"),
        (PROXY | {"ROCKETBOX_CONSOLE_PROXY_TRUSTED_ADDRESSES": ""}, "needs both"),
        (PROXY | {"ROCKETBOX_CONSOLE_PROXY_TRUSTED_ADDRESSES": "0.0.0.0/0"}, "every address"),
        (PROXY | {"ROCKETBOX_CONSOLE_PROXY_TRUSTED_ADDRESSES": "::/0"}, "every address"),
        (PROXY | {"ROCKETBOX_CONSOLE_PROXY_TRUSTED_ADDRESSES": "proxy.local"}, "must be addresses"),
        (PROXY | {"ROCKETBOX_CONSOLE_PROXY_USER_HEADER": "X_Remote_User"}, "without underscores"),
        (PROXY | {"ROCKETBOX_CONSOLE_PROXY_CREATE_ROLE": "root"}, "must be one of"),
        ({"ROCKETBOX_CONSOLE_OIDC_ISSUER": "https://id.example.org"}, "needs both"),
        ({name: value for name, value in OIDC.items() if name not in PUBLIC}, "needs --public-url"),
        (OIDC | {"ROCKETBOX_CONSOLE_OIDC_ISSUER": "http://id.example.org"}, "must begin with https"),
        (OIDC | {"ROCKETBOX_CONSOLE_OIDC_ISSUER": "https://id.example.org?x"}, "no query"),
        (OIDC | {"ROCKETBOX_CONSOLE_OIDC_SCOPES": "profile"}, "must contain openid"),
        (OIDC | {"ROCKETBOX_CONSOLE_OIDC_ROLES": "a=emperor"}, "must be one of"),
    ],
)
def test_what_is_incomplete_or_open_to_everybody_is_refused(environment, said):
    with pytest.raises(StartError, match=said):
        sign_in(environment)

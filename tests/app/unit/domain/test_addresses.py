import pytest

from app.domain.hosts import party_of, unmap_ipv4


@pytest.mark.parametrize(
    ("host", "party"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_site_are_one_party(host: str, party: str) -> None:
    assert party_of(host) == party


def test_an_address_of_the_other_family_has_its_usual_form() -> None:
    assert unmap_ipv4("::ffff:10.0.0.2") == "10.0.0.2"
    for host in ("10.0.0.2", "2001:db8::1", "testclient"):
        assert unmap_ipv4(host) == host

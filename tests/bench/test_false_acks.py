"""The bench of false acknowledgements runs, counts, and finds none by RocketBox."""

from bench import false_acks


def test_ours_are_none_and_the_table_says_so(capsys):
    assert false_acks.main(["--only", "rocketbox"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in lines] == [3] * (2 + len(false_acks.CASES))
    assert all("0 (code 14: 200; 1 calls failed)" in line for line in lines[2:])

"""Patterns: the size of a regular expression, which is compiled anew for each evaluation."""


def count_atoms(pattern: str) -> int:
    """Return how many characters and classes a regular expression has once its counted repetitions are written out."""
    totals, last, place = [0], 0, 0
    while place < len(pattern):
        mark = pattern[place]
        if mark == "(":
            totals.append(0)
        elif mark == ")" and len(totals) > 1:
            last = totals.pop()
            totals[-1] += last
        elif mark == "{":
            end = pattern.find("}", place)
            counts = [int(part) for part in pattern[place + 1 : max(end, place)].split(",") if part.isdigit()]
            totals[-1] += last * (max(counts, default=1) - 1)
            last *= max(counts, default=1)
            place = max(end, place)
        else:
            last = 1
            totals[-1] += 1
            place = _end_of_atom(pattern, place)
        place += 1
    return sum(totals)


def _end_of_atom(pattern: str, place: int) -> int:
    """Return the place of the last character of an atom: an escape, a class, or the character itself."""
    if pattern[place] == "\\":
        return place + 1
    end = pattern.find("]", place + 2)
    return end if pattern[place] == "[" and end > 0 else place

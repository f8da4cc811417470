"""Reads members of JSON in Spark SQL as `facts.members` reads them, whatever the names of their
modules.

A member is taken from the object that has it (`members_of`, `named`), or looked for by its name in
the whole text, at any depth (`enum_field`): inside a JSON string its quotes would be escaped, so
what is found is a member.
"""

from __future__ import annotations

from typing import Final

from instep.model.storable import LONGEST_UUID_CHARS
from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.names import IDENTITY_PREFIXES, MAX_NAME_CHARS

__all__ = [
    "bound",
    "class_name",
    "enum_field",
    "flag",
    "identity",
    "json_path",
    "members_of",
    "named",
    "parent_uuid",
    "short_enough",
    "text",
    "text_field",
    "text_of",
    "trimmed",
]

_BLANK: Final = r"[\s\x1c-\x1f\x85]"
_NO_TEXT: Final = r"^(?:-?[0-9]|true$|false$|[\[{])"
"""How the JSON of anything but a text begins, and few texts do."""
_PREFIX: Final = "|".join(IDENTITY_PREFIXES)
_SPELLINGS: Final = " ".join(
    f"WHEN '{later}' THEN '{name}'" for later, name in CLASS_MODEL.spellings.items()
)
_NO_MEMBERS: Final = "CAST(array() AS ARRAY<STRUCT<key: STRING, value: STRING>>)"
_TEXT: Final = r"""[^"\\]*+(?:\\.[^"\\]*+)*+"""
"""The text between the quotes. The quantifier is possessive: else Java needs stack for each
character, and a long text ends the query with an error.
"""


def bound(value: str, name: str, then: str) -> str:
    """SQL for `then`, in which `name` stands for `value`: this is computed once, and stands in the
    plan once, however often it is named.
    """
    return f"transform(array({value}), {name} -> {then})[0]"


def members_of(objects: str) -> str:
    """SQL: the members of JSON objects, an array of texts, as `key` and `value`: a text as it is,
    anything else as JSON.
    """
    read = "map_entries(from_json(object, 'MAP<STRING, STRING>'))"
    return f"flatten(transform({objects}, object -> coalesce({read}, {_NO_MEMBERS})))"


def named(members: str, *names: str) -> str:
    """SQL: those of `members` with one of these names, whatever their modules."""
    wanted = ", ".join(f"'{name}'" for name in names)
    return f"filter({members}, member -> substring_index(member.key, ':', -1) IN ({wanted}))"


def text(member: str, source: str) -> str:
    """SQL: the value of a member of the JSON `source`, if it is a text and not empty."""
    name = f"substring_index({member}.key, ':', -1)"
    quoted = rf"""concat(r'"(?:[^"\\]*:)?', {name}, r'"\s*:\s*"')"""
    return (
        f"CASE WHEN {member}.value RLIKE r'{_NO_TEXT}' AND NOT {source} RLIKE {quoted} THEN NULL "
        f"ELSE nullif(replace({member}.value, chr(0), '\N{REPLACEMENT CHARACTER}'), '') END"
    )


def text_of(members: str, name: str, source: str) -> str:
    """SQL: the same of the first of `members` with this name."""
    return bound(f"get({named(members, name)}, 0)", "found", text("found", source))


def trimmed(value: str) -> str:
    """SQL: a text without blanks around it."""
    return f"regexp_replace({value}, r'(?U)^{_BLANK}+|{_BLANK}+\\z', '')"


def identity(value: str) -> str:
    """SQL: the short name of an identity; null for what is too long to be one, or says nothing."""
    last = f"substring_index({value}, ':', -1)"
    short = f"regexp_replace(replace({trimmed(last)}, '-', '_'), r'^(?:{_PREFIX})', '')"
    return f"CASE WHEN length({value}) <= {MAX_NAME_CHARS} THEN nullif({short}, '') END"


def class_name(value: str) -> str:
    """SQL: the class that an identity names, with and without its prefix, as 2.1.3 names it."""
    named = f"nullif(regexp_replace({identity(value)}, r'(?s)^.*OBJECT_TYPE_', ''), '')"
    return bound(named, "named", f"CASE named {_SPELLINGS} ELSE named END")


def short_enough(value: str) -> str:
    """SQL: a uuid; null for what is too long to be one."""
    return f"CASE WHEN length({value}) <= {LONGEST_UUID_CHARS} THEN {value} END"


def flag(value: str) -> str:
    """SQL: a truth value, also as a text."""
    return f"CASE {value} WHEN 'true' THEN true WHEN 'false' THEN false END"


def text_field(*names: str) -> str:
    """SQL for the text of the first member of `body` with one of these names; null where there is
    none. To look for a name as it is takes a tenth of the time that the expression takes to find
    nothing.
    """
    there = " OR ".join(f"contains(body, '{name}\"')" for name in names)
    member = rf"""r'"(?:[\w-]+:)?(?:{"|".join(names)})"\s*:\s*"({_TEXT})"'"""
    found = f"CASE WHEN {there} THEN regexp_extract(body, {member}, 1) END"
    # The parser undoes the escapes; most texts have none.
    unescaped = """CASE WHEN contains(found, r'\\')
        THEN from_json(concat('["', found, '"]'), 'ARRAY<STRING>')[0]
        WHEN found <> '' THEN found END"""
    return bound(found, "found", unescaped)


def enum_field(*names: str) -> str:
    """SQL for such an identity or enumeration in its short form: ACTIVE, CRITICAL, NODE."""
    return bound(text_field(*names), "stated", identity("stated"))


def parent_uuid(entity_class: str) -> str:
    """SQL for the uuid of the entity of this class, such as `node`, in `parent_address`; null where
    none is.
    """
    name = f"{entity_class}-uuid:"
    own = f"filter(from_json(parent_address, 'ARRAY<STRING>'), one -> startswith(one, '{name}'))"
    # To look for the name costs less than to parse the address.
    return (
        f"CASE WHEN contains(parent_address, '{name}') "
        f"THEN nullif(substr(get({own}, 0), {len(name) + 1}), '') END"
    )


def json_path(*names: str, source: str = "body") -> str:
    """SQL for the JSON text under a path of member names without prefixes."""
    steps = "".join(f"[''{name}'']" for name in names).replace("''", "\\'")
    return f"get_json_object({source}, '${steps}')"

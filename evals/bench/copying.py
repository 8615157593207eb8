"""Prompts whose right answer repeats what they hold: where drafting from the text itself helps."""

LISTS = (
    (
        "the tools in the shed",
        (
            "a claw hammer with an ash handle",
            "two flat screwdrivers",
            "a coping saw and six spare blades",
            "a tape measure, five metres",
            "one tin of wood screws, forty millimetres",
        ),
    ),
    (
        "the stops of the night train",
        (
            "Harbour Street at 22:05",
            "Millbrook Junction at 22:41",
            "Saint Anne's Bridge at 23:17",
            "Upper Fenwick at 23:58",
            "Castle Road at 00:36",
        ),
    ),
    (
        "the ingredients of the soup",
        (
            "three large carrots, peeled and sliced",
            "one onion, finely chopped",
            "half a litre of vegetable stock",
            "a pinch of black pepper",
            "two spoons of barley",
        ),
    ),
    (
        "the fields of the record",
        (
            "customer_identifier: integer, not null",
            "created_at: timestamp with time zone",
            "shipping_address: text, at most 200 characters",
            "total_amount: decimal with two places",
            "is_cancelled: boolean, false by default",
        ),
    ),
    (
        "the rooms on the second floor",
        (
            "201, the reading room, twelve seats",
            "202, the map archive, closed on Mondays",
            "203, the music collection, headphones at the desk",
            "204, the workshop, booked until noon",
            "205, the office of the librarian",
        ),
    ),
    (
        "the birds that were seen at the lake",
        (
            "four grey herons near the reeds",
            "a pair of great crested grebes",
            "eleven mute swans with seven cygnets",
            "one kingfisher by the sluice",
            "twenty-three lapwings on the north meadow",
        ),
    ),
    (
        "the settings of the heating",
        (
            "weekdays from six to nine: twenty degrees",
            "weekdays from nine to five: sixteen degrees",
            "evenings until eleven: twenty-one degrees",
            "nights: fifteen degrees",
            "holidays: twelve degrees",
        ),
    ),
    (
        "the entries of the log",
        (
            "08:12 valve seven opened by hand",
            "08:15 pressure rose to 4.2 bar",
            "08:31 alarm acknowledged at panel B",
            "08:44 valve seven closed, pressure 3.1 bar",
            "09:00 shift handed over without remarks",
        ),
    ),
)
"""What each list is about, and its items."""


def copy_prompts() -> list[str]:
    """One request per list: to write it down once more, item by item."""
    return [
        f"Here is a list of {subject}:\n\n{_lines(items)}\n\n"
        "Copy the list exactly, one item per line, in the same order. Write nothing else."
        for subject, items in LISTS
    ]


def _lines(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in items)

"""The words of the built-in graded tasks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb in three forms."""

    plain: str
    past: str
    participle: str


VERBS = [
    Verb("put", "put", "put"),
    Verb("hide", "hid", "hidden"),
    Verb("leave", "left", "left"),
    Verb("find", "found", "found"),
    Verb("see", "saw", "seen"),
    Verb("drop", "dropped", "dropped"),
]

NAMES = (
    "Anna Ben Lily Tom Max Mia Sam Sue Tim Jack Jane Lucy Bob Amy Joe Ella Leo Rose Dan Kate Nick Sara Finn Emma"
).split()

COUNTED = (
    "apples balls books cakes cups dolls eggs flowers keys stones shells coins cookies toys boats pencils buttons bells"
).split()

LANDMARKS = "tree river house barn lake bridge school park pond road rock gate hill well farm wall tower church".split()

THINGS = (
    "ball cup hat book doll drum cake apple key toy boat bell box kite car truck coat shoe spoon ring bag pencil "
    "flower stone candle blanket cookie basket letter coin"
).split()

PLACES = (
    "in the garden|on the table|under the bed|in the kitchen|by the river|near the tree|on the chair|in the forest|"
    "behind the door|at the park|in the car|on the roof|under the bridge|in the barn|by the lake|at the school|"
    "in the tent|on the shelf|behind the house|near the pond|at the beach|on the boat|in the cave|by the road"
).split("|")

WORDS = (
    "ant apple arm baby bag ball bear bed bee bell bird boat book box boy bread bug bus cake car cat chair cow cup "
    "day dog door doll drum duck ear egg eye farm fire fish flag flower fork fox frog game gate girl goat hand hat "
    "hen hill horse house ice ink jam jar key king kite lake lamp leaf lion lip map milk moon mouse nail nest net "
    "night nose nut oak owl page pan park pen pie pig pond queen rain ring river road rock roof rope rose sand sea "
    "seed ship shoe sky snow sock song soup star stone sun table tail tent toe top toy tree truck van vest wall "
    "water well wind wing wolf wood yard zoo"
).split()

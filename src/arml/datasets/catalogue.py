"""The benchmarks' data sets: their content, their authors, their terms and their addresses.

A data set is one or more families of tasks. A family is made from archives that its publisher
offers. Data that may not be passed on are never downloaded: the user must accept their terms at the
publisher. A user's own copy of an archive can replace a download.
"""

from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Archive:
    """A file that a publisher offers."""

    name: str
    size: int
    """Bytes, as published; 0 if unknown."""
    md5: str | None
    """The publisher's checksum, or the one that is in general use."""
    url: str | None
    """Its address; None if the user must accept terms before a download."""
    instructions: str = ""
    """How a user gets it; empty if the address says it."""
    is_list: bool = False
    """It names pictures, and has none."""

    @property
    def get(self) -> str:
        """Instructions for a user who needs it."""
        return self.instructions or f"fetch {self.url}"


@dataclass(frozen=True)
class Origin:
    """A published collection of pictures, which becomes one family of tasks."""

    layout: str
    """The module of this package that reads its files."""
    archives: tuple[Archive, ...]
    licence: str
    homepage: str
    citation: str
    about: str
    terms: str = "research"
    """The permitted use, in one word."""


@dataclass(frozen=True)
class DataSet:
    """A data set that `arml data prepare` makes."""

    about: str
    families: dict[str, str]
    """Each family's origin."""
    pictures: int
    """The pictures of all families, including filtered ones."""
    filters: tuple[str, ...] = ()
    """Each family has one more family for each of these filters."""
    size: int = 84
    """Pixels a side."""


def _vgg(name: str, size: int, md5: str, path: str) -> Archive:
    return Archive(name, size, md5, f"https://www.robots.ox.ac.uk/~vgg/data/{path}/{name}")


def _omniglot(name: str, md5: str) -> Archive:
    url = f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}"
    return Archive(name, 0, md5, url)


def _list(name: str) -> Archive:
    url = (
        "https://raw.githubusercontent.com/twitter-research/meta-learning-lstm/master/data/"
        f"miniImagenet/{name}"
    )
    return Archive(name, 0, None, url, is_list=True)


_FUNGI = (
    "the address at https://github.com/visipedia/fgvcx_fungi_comp has refused downloads since "
    "December 2024: use a copy that somebody fetched before, whose checksum is verified"
)
_CIFAR_FS = (
    "fetch the zip that its authors link at https://github.com/bertinetto/r2d2 (no checksum is "
    "published: its folders and its split are checked)"
)
_ILSVRC = Archive(
    "ILSVRC2012_img_train.tar",
    147_897_477_120,
    "1d675b47d978889d74fa0da5fadfb00e",
    None,
    "register at https://image-net.org/download.php and fetch it there",
)
_IMAGENET_TERMS = (
    "non-commercial research and education; may not be passed on "
    "(https://image-net.org/download.php)"
)

ORIGINS: dict[str, Origin] = {
    "cub": Origin(
        "cub",
        (
            Archive(
                "CUB_200_2011.tgz",
                1_150_585_339,
                "97eceeb196236b17998738112f37df78",
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            ),
        ),
        "non-commercial research and education; the photographs are their owners'",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        "Wah, Branson, Welinder, Perona, Belongie: The Caltech-UCSD Birds-200-2011 Dataset. "
        "CNS-TR-2011-001, California Institute of Technology, 2011",
        "Birds of 200 species, cropped to their bounding boxes",
    ),
    "dtd": Origin(
        "dtd",
        (
            _vgg(
                "dtd-r1.0.1.tar.gz",
                625_239_812,
                "fff73e5086ae6bdbea199a49dfb8a4c1",
                "dtd/download",
            ),
        ),
        "research purposes; the photographs are their owners'",
        "https://www.robots.ox.ac.uk/~vgg/data/dtd/",
        "Cimpoi, Maji, Kokkinos, Mohamed, Vedaldi: Describing Textures in the Wild. CVPR 2014",
        "Textures of 47 kinds",
    ),
    "aircraft": Origin(
        "aircraft",
        (
            _vgg(
                "fgvc-aircraft-2013b.tar.gz",
                0,
                "d4acdd33327262359767eeaa97a4f732",
                "fgvc-aircraft/archives",
            ),
        ),
        "non-commercial research; the photographs are their owners'",
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
        "Maji, Kannala, Rahtu, Blaschko, Vedaldi: Fine-Grained Visual Classification of Aircraft. "
        "arXiv:1306.5151, 2013",
        "Aircraft of 100 variants, cropped to their bounding boxes",
    ),
    "fungi": Origin(
        "fungi",
        (
            Archive("fungi_train_val.tgz", 0, "df2b2980835668ed1d9a0e286e4bdadd", None, _FUNGI),
            Archive(
                "train_val_annotations.tgz", 0, "c3c0f1b8a8d0b60619c43d9c89bdbc7e", None, _FUNGI
            ),
        ),
        "non-commercial research and education; may not be passed on",
        "https://github.com/visipedia/fgvcx_fungi_comp",
        "FGVCx Fungi Classification Challenge, with the Danish Svampe Atlas. FGVC5 at CVPR 2018",
        "Fungi of 100 of 1,394 species",
    ),
    "mini-imagenet": Origin(
        "imagenet",
        (_ILSVRC, _list("train.csv"), _list("val.csv"), _list("test.csv")),
        _IMAGENET_TERMS,
        "https://image-net.org",
        "Vinyals, Blundell, Lillicrap, Kavukcuoglu, Wierstra: Matching Networks for One Shot "
        "Learning. NIPS 2016; lists: Ravi, Larochelle: Optimization as a Model for Few-Shot "
        "Learning. ICLR 2017; pictures: Russakovsky et al.: ImageNet Large Scale Visual "
        "Recognition Challenge. IJCV 2015",
        "600 pictures of each of 100 classes of ILSVRC 2012",
    ),
    "tiered-imagenet": Origin(
        "imagenet",
        (_ILSVRC,),
        _IMAGENET_TERMS,
        "https://image-net.org",
        "Ren, Triantafillou, Ravi, Snell, Swersky, Tenenbaum, Larochelle, Zemel: Meta-Learning for "
        "Semi-Supervised Few-Shot Classification. ICLR 2018; pictures: Russakovsky et al.: "
        "ImageNet Large Scale Visual Recognition Challenge. IJCV 2015",
        "608 classes of ILSVRC 2012, split by category",
    ),
    "omniglot": Origin(
        "omniglot",
        (
            _omniglot("images_background.zip", "68d2efa1b9178cc56df9314c21c6e718"),
            _omniglot("images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811"),
        ),
        "MIT",
        "https://github.com/brendenlake/omniglot",
        "Lake, Salakhutdinov, Tenenbaum: Human-Level Concept Learning through Probabilistic "
        "Program Induction. Science 350, 2015",
        "1,623 handwritten characters of 50 alphabets, 20 writers each",
        "any use",
    ),
}

ORIGINS["cifar-fs"] = Origin(
    "cifar-fs",
    (Archive("cifar-fs.zip", 0, None, None, _CIFAR_FS),),
    "not stated; the pictures are those of CIFAR-100, drawn from the web",
    "https://www.robots.ox.ac.uk/~luca/r2d2.html",
    "Bertinetto, Henriques, Torr, Vedaldi: Meta-Learning with Differentiable Closed-Form Solvers. "
    "ICLR 2019; pictures: Krizhevsky: Learning Multiple Layers of Features from Tiny Images. 2009",
    "600 pictures of 32 px of each of 100 classes of CIFAR-100",
)

PLAIN = {"bird": "cub", "texture": "dtd", "aircraft": "aircraft", "fungi": "fungi"}
"""The families of Plain-Multi by their names in the paper, with their origins."""

CATALOGUE: dict[str, DataSet] = {
    "plain-multi": DataSet("Bird, texture, aircraft and fungi, a family each", PLAIN, 36_640),
    "art-multi": DataSet(
        "Plain-Multi, and the same through a blur and a pencil filter: twelve families",
        PLAIN,
        3 * 36_640,
        filters=("blur", "pencil"),
    ),
    "mini-imagenet": DataSet(
        ORIGINS["mini-imagenet"].about, {"mini-imagenet": "mini-imagenet"}, 60_000
    ),
    "tiered-imagenet": DataSet(
        ORIGINS["tiered-imagenet"].about, {"tiered-imagenet": "tiered-imagenet"}, 779_165
    ),
    "omniglot": DataSet(ORIGINS["omniglot"].about, {"omniglot": "omniglot"}, 32_460, size=28),
    "cifar-fs": DataSet(ORIGINS["cifar-fs"].about, {"cifar-fs": "cifar-fs"}, 60_000, size=32),
    "bird": DataSet(ORIGINS["cub"].about, {"bird": "cub"}, 6_000),
    "texture": DataSet(ORIGINS["dtd"].about, {"texture": "dtd"}, 5_640),
    "aircraft": DataSet(ORIGINS["aircraft"].about, {"aircraft": "aircraft"}, 10_000),
    "fungi": DataSet(ORIGINS["fungi"].about, {"fungi": "fungi"}, 15_000),
}


def lookup(name: str) -> DataSet:
    """The data set of that name.

    **Raises** `ValueError` with the known names for another.
    """
    if name not in CATALOGUE:
        close = get_close_matches(name, CATALOGUE, 1, 0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown data set {name!r}: expected one of {', '.join(CATALOGUE)}{hint}")
    return CATALOGUE[name]


def origins(data: DataSet) -> list[Origin]:
    """The origins of a data set's families."""
    return [ORIGINS[origin] for origin in data.families.values()]

"""A small world of drawn scenes with captions, so that the example runs without any data.

Two groups of equal shapes stand side by side, or one above the other:

    ┌─────────┬─────────┐
    │   ●     │         │     "three small red circles left of large blue square"
    │   ●     │    ■    │
    │   ●     │         │
    └─────────┴─────────┘
"""

import numpy as np

from vocabulary import clean

SIDE = 24  # pixels
NUM_FEATURES = 4096
COLOURS = {
    "red": (230, 40, 40),
    "green": (40, 190, 60),
    "blue": (50, 80, 235),
    "yellow": (240, 220, 50),
    "purple": (160, 60, 200),
    "white": (250, 250, 250),
}
GROUNDS = {"black": (10, 10, 10), "grey": (110, 110, 110), "brown": (110, 70, 30)}
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = {"small": 2, "large": 4}  # half the width, in pixels
COUNTS = ("one", "two", "three")
PLACES = {"left": ("left of", "right of"), "top": ("above", "below")}


def draw_scenes(num_scenes, seed=0):
    """Return, for each split, the scenes' captions and features; 80, 10 and 10 % of them."""
    random = np.random.default_rng(seed)
    scenes = [make_scene(random) for _ in range(num_scenes)]
    features = project(np.stack([image for image, _ in scenes]))
    captions = [of_image for _, of_image in scenes]
    ends = {"train": (0, 0.8), "dev": (0.8, 0.9), "test": (0.9, 1)}
    splits = {}
    for split, (begin, end) in ends.items():
        part = slice(round(begin * num_scenes), round(end * num_scenes))
        splits[split] = (captions[part], features[part])
    return splits


def make_scene(random):
    """Return an image, (SIDE, SIDE, 3) of whole numbers up to 255, and five cleaned captions."""
    ground = random.choice(list(GROUNDS))
    place = random.choice(list(PLACES))
    groups = [
        {
            "count": int(random.integers(len(COUNTS))) + 1,
            "size": random.choice(list(SIZES)),
            "colour": random.choice(list(COLOURS)),
            "shape": random.choice(SHAPES),
        }
        for _ in range(2)
    ]
    image = np.empty((SIDE, SIDE, 3), dtype=np.float32)
    image[:] = GROUNDS[ground]
    for half, group in enumerate(groups):
        draw_group(image if place == "top" else image.transpose(1, 0, 2), half, group, random)
    return image, [clean(text) for text in describe(groups, place, ground)]


def draw_group(image, half, group, random):
    """Draw the shapes of a group in a row, in the upper (0) or lower (1) half of the image."""
    for i in range(group["count"]):
        y = SIDE // 4 + half * SIDE // 2 + random.integers(-1, 2)
        x = (2 * i + 1) * SIDE // (2 * group["count"]) + random.integers(-1, 2)
        radius = SIZES[group["size"]]
        dy, dx = np.mgrid[:SIDE, :SIDE] - np.array([y, x])[:, None, None]
        inside = np.maximum(abs(dy), abs(dx)) <= radius
        if group["shape"] == "circle":
            inside &= dy**2 + dx**2 <= radius**2 + 1
        elif group["shape"] == "triangle":
            inside &= 2 * abs(dx) <= dy + radius
        elif group["shape"] == "cross":
            inside &= np.minimum(abs(dy), abs(dx)) <= radius // 3
        image[inside] = COLOURS[group["colour"]]


def describe(groups, place, ground):
    """Return five captions, as five people would write them."""
    first, second = (name(group) for group in groups)
    before, after = PLACES[place]
    return [
        f"{first} {before} {second}",
        f"{second} {after} {first}",
        f"there is {first} {before} {second} on {ground} ground",
        f"{ground} picture with {first} and {second}",
        f"{second} on {ground} ground, {after} {first}",
    ]


def name(group):
    """Return for example `two large red crosses`."""
    shape = group["shape"]
    if group["count"] > 1:
        shape += "es" if shape.endswith("s") else "s"
    return f"{COUNTS[group['count'] - 1]} {group['size']} {group['colour']} {shape}"


def project(images, seed=1):
    """Return a fixed random projection of pixels, rectified: the features of the scenes.

    Signs and whole numbers add up to whole numbers below 2**24, which float32 holds exactly: the
    features are the same to the last bit in every process, in whatever order it adds.
    """
    pixels = images.reshape(len(images), -1)
    random = np.random.default_rng(seed)
    signs = random.integers(0, 2, (pixels.shape[1], NUM_FEATURES), dtype=np.int8) * 2 - 1
    projected = pixels @ signs.astype(np.float32)
    return np.maximum(projected / np.float32(128 * pixels.shape[1] ** 0.5), 0)

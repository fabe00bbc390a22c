"""Tables 1–4 of Schultheis & Babbar (2022). Times are in minutes on 128 cores (Table 3: 20 cores)."""

from __future__ import annotations

# data set, zero, bias, OvAP, MSI, zero/MSI
TABLE_1 = [
    ("Eurlex-4K", 0.1, 0.1, 0.1, 0.1, 1.8),
    ("Wiki10-31K", 3.2, 3.1, 2.6, 1.9, 1.6),
    ("AmazonCat-13K", 19.7, 11.5, 12.6, 5.6, 3.5),
    ("AmazonCat-14K", 78.8, 34.0, 48.0, 23.2, 3.4),
    ("WikiTitles-500K", 320.6, 187.8, 301.8, 71.1, 4.5),
    ("Amazon-670K", 409.1, 337.3, 259.4, 81.3, 5.0),
    ("Delicious-200K", 470.6, 416.2, 337.5, 283.8, 1.7),
    ("WikiLSHTC", 1111.0, 479.5, 634.8, 310.5, 3.6),
    ("Eurlex-4K, dense", 0.1, 0.1, 0.1, 0.0, 2.7),
    ("Amazon-670K, dense", 782.4, 376.5, 489.1, 321.2, 2.4),
]
TABLE_2 = [
    ("Eurlex-4K", 0.2, 0.2, 0.1, 0.2, 1.2),
    ("Wiki10-31K", 4.1, 3.4, 2.4, 3.5, 1.2),
    ("AmazonCat-13K", 35.6, 28.2, 24.8, 28.2, 1.4),
    ("AmazonCat-14K", 160.1, 127.6, 111.3, 125.3, 1.3),
    ("WikiTitles-500K", 366.8, 311.0, 270.4, 315.7, 1.2),
    ("Amazon-670K", 633.6, 522.8, 420.4, 525.5, 1.2),
]
# data set, zero/OvAP++, zero/MSI; two programs were compared, each with its own zero start
TABLE_3 = [
    ("Eurlex-4K", 1.7, 2.5),
    ("Wiki10-31K", 1.7, 2.4),
    ("AmazonCat-13K", 2.0, 3.8),
    ("AmazonCat-14K", 2.2, 3.7),
    ("WikiTitles-500K", 2.2, 4.7),
    ("Amazon-670K", 3.1, 4.1),
]
# data set, start, P@1, P@3, P@5, precision, recall, minutes; two of the paper's eleven sets
TABLE_4 = [
    ("AmazonCat-13K", "zero", 93.2, 78.9, 64.2, 84.9, 58.2, 19.75),
    ("AmazonCat-13K", "bias", 93.2, 78.9, 64.2, 84.9, 58.1, 11.50),
    ("AmazonCat-13K", "OvAP", 93.2, 78.9, 64.2, 85.0, 58.1, 12.58),
    ("AmazonCat-13K", "MSI", 93.0, 78.9, 64.1, 84.9, 58.0, 5.60),
    ("Eurlex-4K, dense", "zero", 77.2, 63.4, 51.3, 72.8, 36.3, 0.13),
    ("Eurlex-4K, dense", "bias", 75.3, 62.1, 50.2, 76.0, 26.4, 0.07),
    ("Eurlex-4K, dense", "OvAP", 76.9, 63.5, 51.4, 72.5, 36.4, 0.07),
    ("Eurlex-4K, dense", "MSI", 76.6, 63.0, 51.4, 67.7, 39.1, 0.05),
]
FIGURES = {
    "figure-01": "Figure 1: objective by iteration",
    "figure-02": "Figure 2: error of the quadratic approximation",
    "figure-03": "Figure 3: line-search multiplier by bias value",
    "figure-04": "Figure 4: active fraction and time per step, by bias value",
    "figure-05": "Figure 5: the mean rows and the hyperplanes that separate them",
    "figure-06": "Figure 6: active fraction by start",
    "figure-07": "Figure 7: Newton iterations and time per label, by number of positives",
    "figure-08": "Figure 8: time, multiplier and CG steps per Newton iteration, by start",
    "figure-09": "Figure 9: time per label, OvAP strict and loose",
    "figure-10": "Figure 10: Newton iterations, OvAP strict and loose",
    "figure-11": "Figure 11: objective and multiplier, OvAP strict and loose",
    "figure-12": "Figure 12: time per label, by bias value",
    "figure-13": "Figure 13: Newton iterations by bias value",
    "figure-14": "Figure 14: initial loss and distance to the optimum",
    "figure-15": "Figure 15: mean-separating start with t = −1, −2, −3",
}

"""BibTeX entries for a run: MARS, the sources of its rule, and MARS Viz.

A rule's `source` contains arXiv numbers. Papers missing from `PAPERS` are cited by number only.
"""

from __future__ import annotations

import re

from mars_viz import __version__
from mars_viz.rules import rule_named

MARS = "2601.15498"
PAPERS = {
    MARS: (
        "song2026mars",
        "{MARS}: Unleashing the Power of Speculative Decoding via Margin-Aware Verification",
        "Song, Jingwei and Wang, Xinyu and Wang, Hanbin and Lei, Xiaoxuan and Shi, Bill and Han, Shixin and Yang, Eric"
        " and Chang, Xiao-Wen and Ai, Lynn",
    ),
    "2211.17192": (
        "leviathan2022fast",
        "Fast Inference from Transformers via Speculative Decoding",
        "Leviathan, Yaniv and Kalman, Matan and Matias, Yossi",
    ),
    "2302.01318": (
        "chen2023accelerating",
        "Accelerating Large Language Model Decoding with Speculative Sampling",
        "Chen, Charlie and Borgeaud, Sebastian and Irving, Geoffrey and Lespiau, Jean-Baptiste and Sifre, Laurent and"
        " Jumper, John",
    ),
    "2403.10444": (
        "sun2024block",
        "Block Verification Accelerates Speculative Decoding",
        "Sun, Ziteng and Mendlovic, Uri and Leviathan, Yaniv and Aharoni, Asaf and Ro, Jae Hun and Beirami, Ahmad and"
        " Suresh, Ananda Theertha",
    ),
    "2305.09781": (
        "miao2023specinfer",
        "{SpecInfer}: Accelerating Generative Large Language Model Serving with Tree-based Speculative Inference and"
        " Verification",
        "Miao, Xupeng and Oliaro, Gabriele and Zhang, Zhihao and Cheng, Xinhao and Wang, Zeyu and Zhang, Zhengxin and"
        " Wong, Rae Ying Yee and Zhu, Alan and Yang, Lijie and Shi, Xiaoxiang and Shi, Chunan and Chen, Zhuoming and"
        " Arfeen, Daiyaan and Abhyankar, Reyna and Jia, Zhihao",
    ),
    "2310.15141": (
        "sun2023spectr",
        "{SpecTr}: Fast Speculative Decoding via Optimal Transport",
        "Sun, Ziteng and Suresh, Ananda Theertha and Ro, Jae Hun and Beirami, Ahmad and Jain, Himanshu and Yu, Felix",
    ),
    "2505.12398": (
        "weng2025traversal",
        "Traversal Verification for Speculative Tree Decoding",
        "Weng, Yepeng and Hu, Qiao and Chen, Xujie and Li, Liu and Mei, Dianwen and Qiu, Huishi and Tian, Jiang and"
        " Shi, Zhongchao",
    ),
    "2602.16961": (
        "thomas2026greedy",
        "Greedy Multi-Path Block Verification for Faster Decoding in Speculative Sampling",
        "Thomas, Rahul and Pal, Arka",
    ),
    "2401.10774": (
        "cai2024medusa",
        "Medusa: Simple {LLM} Inference Acceleration Framework with Multiple Decoding Heads",
        "Cai, Tianle and Li, Yuhong and Geng, Zhengyang and Peng, Hongwu and Lee, Jason D. and Chen, Deming and"
        " Dao, Tri",
    ),
    "2302.07863": (
        "kim2023bild",
        "Speculative Decoding with Big Little Decoder",
        "Kim, Sehoon and Mangalam, Karttikeya and Moon, Suhong and Malik, Jitendra and Mahoney, Michael W. and"
        " Gholami, Amir and Keutzer, Kurt",
    ),
    "1904.09751": (
        "holtzman2019curious",
        "The Curious Case of Neural Text Degeneration",
        "Holtzman, Ari and Buys, Jan and Du, Li and Forbes, Maxwell and Choi, Yejin",
    ),
    "2405.19261": (
        "narasimhan2024faster",
        "Faster Cascades via Speculative Decoding",
        "Narasimhan, Harikrishna and Jitkrittum, Wittawat and Rawat, Ankit Singh and Kim, Seungyeon and Gupta, Neha and"
        " Menon, Aditya Krishna and Kumar, Sanjiv",
    ),
    "2407.01082": (
        "nguyen2024turning",
        "Turning Up the Heat: Min-p Sampling for Creative and Coherent {LLM} Outputs",
        "Nguyen, Minh Nhat and Baker, Andrew and Neo, Clement and Roush, Allen and Kirsch, Andreas and"
        " Shwartz-Ziv, Ravid",
    ),
    "2511.22972": (
        "li2025training",
        "Training-Free Loosely Speculative Decoding: Accepting Semantically Correct Drafts Beyond Exact Match",
        "Li, Jinze and Xu, Yixing and Li, Guanchen and Yang, Shuo and Xu, Jinfeng and Yin, Xuanwu and Li, Dong and"
        " Ngai, Edith C. H. and Barsoum, Emad",
    ),
    "2512.13194": (
        "sun2025ears",
        "{EARS}: Efficient Adaptive Rejection Sampling for Accelerating Speculative Decoding in Large Language Models",
        "Sun, Chendong and Mao, Ali and Xu, Lei and Chen, Mingmin",
    ),
    "2604.04987": (
        "hao2026cactus",
        "Cactus: Accelerating Auto-Regressive Decoding with Constrained Acceptance Speculative Sampling",
        "Hao, Yongchang and Mou, Lili",
    ),
    "2604.07622": (
        "wang2026diversed",
        "{DIVERSED}: Relaxed Speculative Decoding via Dynamic Ensemble Verification",
        "Wang, Ziyi and Kasa, Siva Rajesh and M S, Ankith and Kasa, Santhosh Kumar and Zou, Jiaru and Negi, Sumit and"
        " Zhang, Ruqi and Jiang, Nan and Song, Qifan",
    ),
}
"""Key, title and authors in BibTeX format by arXiv number."""


def bibtex(*rule_names: str) -> str:
    """Return BibTeX for MARS, each rule's sources and MARS Viz, without duplicates."""
    sources, entries = {MARS: ""}, []
    for source in (rule_named(name).source for name in rule_names):
        for number in re.findall(r"(?<!\d)\d{4}\.\d{5}(?!\d)", source):
            sources.setdefault(number, source)
    for number, source in sources.items():
        fields = {"eprint": number, "archivePrefix": "arXiv", "year": f"20{number[:2]}"}
        if number in PAPERS:
            key, title, authors = PAPERS[number]
            entries.append(_entry(key, {"title": title, "author": authors} | fields))
        else:  # free text is escaped, without braces and backslashes
            note = re.sub(r"([_&%#$])", r"\\\1", re.sub(r"[{}\\]", "", source))
            entries.append(_entry(f"arxiv{number.replace('.', '')}", fields | {"note": note}))
    fields = {"title": "{MARS Viz}", "author": "{The MARS Viz authors}", "version": __version__}
    fields["note"] = "Speculative decoding, shown token by token"
    return "\n\n".join([*entries, _entry("marsviz", fields, kind="software")]) + "\n"


def _entry(key: str, fields: dict[str, str], kind: str = "misc") -> str:
    return f"@{kind}{{{key},\n" + "\n".join(f"  {name} = {{{text}}}," for name, text in fields.items()) + "\n}"

"""What experiment files say about tables and figures: every printed number has one place, and places have names."""

from fedsaf.reproduction.experiments import called, displays, experiments
from fedsaf.reproduction.paper import AXES, paper_values

ROLES = {"table": ("rows", "columns"), "figure": ("panels", "series", "points")}


def test_every_printed_number_has_a_place_and_no_label_is_unknown_to_its_table():
    for display in displays("table").values():
        paper, table = display.node["printed"]
        places = {tuple(place.labels[axis] for axis in AXES) for place in display.places(ROLES["table"], "full")}
        printed = {
            tuple(v.labels[axis] for axis in AXES) for v in paper_values() if (v.paper, v.table) == (paper, table)
        }
        assert printed <= places, f"{display.id}: {sorted(printed - places)}"
    shown = {tuple(display.node["printed"]) for display in displays("table").values()}
    assert {(value.paper, value.table) for value in paper_values()} <= shown


def test_every_place_has_a_name_of_its_own():
    for kind, roles in ROLES.items():
        for display in displays(kind).values():
            places = list(display.places(roles, "full"))
            names = {tuple(place.name(role) for role in roles) for place in places}
            again = {str(place) for place in places}
            assert len(names) == len(again), display.id


def test_a_file_alone_is_a_target_and_files_of_one_table_are_in_order():
    assert {display.target for display in displays("table").values()} >= {"table-3", "fedproc-t2", "structure-terms"}
    blocks = [block.experiment.name for block in displays("table")["tgp-k7"].blocks]
    assert blocks == ["fedtgp_k7_extractors", "fedtgp_k7_classifiers", "fedtgp_k7_clients"]
    assert [one.id for one in called(["fedtgp-k5", "saf-t3"], displays("table").values(), "table")] == [
        "tgp-k5",
        "saf-t3",
    ]
    assert experiments()["table_3"].sweep["partition.alpha"] == ["0.1", "0.5", "1.0"]


def test_labels_by_hand():
    places = list(displays("table")["saf-t4"].places(("rows", "columns"), "small"))
    assert (places[2].name("rows"), places[2].name("columns"), places[2].part) == ("FedSAF-MSE", "PACS, Photo", "Photo")
    assert places[2].labels == {
        "dataset": "PACS",
        "partition": "one domain per client",
        "model_group": "HtFE9",
        "method": "FedSAF-MSE",
        "setting": "Photo",
    }
    (first, *_) = displays("figure")["saf-f5"].places(("panels", "points"), "small")
    assert (first.name("panels"), first.roles["points"]) == ("FedSAF-MSE", {"lambda": "0.0", "gamma": "0.0"})

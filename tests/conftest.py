"""One thread for each process that runs tests: several of them share the cores already."""

import os

import pytest

# Read when torch and NumPy are loaded, which is after this file. Threads of OpenMP that wait for
# each other on cores that are taken make small models slower by a multiple.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Cases that take long and whose law another case of the same test holds more quickly: they are left
# to `make test-all`. A whole test that takes long has the mark itself.
LONG = {
    "test_p15_the_ledger_charges_what_the_plan_says": (
        *("add-remove-gaussian-poisson", "substitute-gaussian-per-epoch"),
        *("substitute-gaussian-poisson", "substitute-gaussian-static", "substitute-sign-per-step"),
        *("substitute-sign-poisson", "substitute-layers-per-step"),
    ),
    "test_more_coordinates_are_cheaper_down_to_no_projection": (
        *("poisson-0.02-add-remove", "without-replacement-0.02-add-remove"),
        *("none-1.0-add-remove", "without-replacement-0.02-substitute"),
    ),
    "test_signs_are_dearer_than_gaussian_entries_and_cheaper_than_one_bound": (
        *("10-2.135", "2-2.0"),
    ),
    "test_the_plan_compares_joint_batches_with_poisson_for_every_number_of_colluders": ("0",),
    "test_a_disk_that_is_full_stops_the_run_and_loses_nothing": ("0",),
    "test_a_study_that_sends_ten_numbers_of_twenty_seven_trains": ("gaussian",),
    "test_every_step_is_taken_along_the_lifted_sum": ("gaussian-0", "sign-0"),
    "test_the_revealed_numbers_have_the_planned_noise": ("gaussian",),
    "test_every_sum_and_step_of_an_honest_run_is_made_again": (
        *("gaussian-projection", "sign-projection"),
    ),
    "test_a_defect_is_found": ("sampled more often",),
    "test_a_sound_study_is_not_contradicted": ("some nodes each", "nodes and drop-outs", "poisson"),
    "test_every_experiment_writes_table_figure_and_how_it_was_made": (
        *("utility", "projection", "effective_rate"),
    ),
    "test_every_experiment_writes_table_summary_figure_and_how_it_was_made": (
        *("fat_clients", "scaling"),
    ),
    "test_a_finished_run_is_not_made_again": ("utility", "projection"),
    "test_the_decoded_sum_is_the_sum_of_what_was_encoded": ("100-0-32", "100-0-64"),
    "test_no_random_schedule_breaks_a_law": ("pairwise-25",),
    "test_a_server_restarted_in_every_phase_costs_nothing": ("pairwise", "full-shares"),
    "test_projection_at_the_papers_noise": ("100-0.937-1.83-0.930", "1000-1.260-1.62-1.259"),
    "test_the_gathered_mixture_is_above_the_whole_one_by_little": (
        *("substitute-0-exchange_stick-2.0-10", "substitute-0-exchange_stick-2.0-400"),
    ),
    "test_a_joint_seed_that_could_have_been_chosen_is_found": ("revealed_late--",),
    "test_a_leak_that_is_planted_on_purpose_is_found": ("keeps_coded", "prints", "warns"),
    "test_nothing_planted_leaves_a_silo_in_a_whole_run": ("0",),
    "test_the_certificate_is_added_to_every_exposure_and_at_every_step": ("one2",),
    "test_serve_goes_on_wherever_the_aggregators_process_ended": tuple(
        f"{when}-{nodes}-{number}"
        for when in ("before", "after")
        for nodes, number in ((0, 1), (0, 7), (0, 9), (0, 11), (2, 4), (2, 8), (2, 13), (2, 12))
    ),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long."""
    for item in items:
        name, _, case = item.name.partition("[")
        if case.removesuffix("]") in LONG.get(name, ()):
            item.add_marker("slow")

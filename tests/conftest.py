"""One thread for each process that runs tests, and no disk."""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

gc.disable()  # while hundreds of modules are imported: until `pytest_runtestloop`

# No test fails because the machine is slow.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without a clock")

# Read when torch and NumPy are loaded, which is after this file. Threads of OpenMP that wait for
# each other on cores that are taken make small models slower by a multiple.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Files of tests are in memory where there is enough of it: thousands of ledgers would wait for a
# disk dozens of times each. PYTEST_DEBUG_TEMPROOT puts them elsewhere.
MEMORY = Path("/dev/shm")  # noqa: S108 (pytest makes folders of its own in it)
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# What code was run is noted for the user: for one that has run none before.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="hubbub-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Cases that take long and whose law another case of the same test holds more quickly: they are left
# to `make test-all`. A whole test that takes long has the mark itself.
LONG = {
    "test_more_coordinates_are_cheaper_down_to_no_projection": (
        *("poisson-0.02-add-remove", "without-replacement-0.02-add-remove"),
        *("none-1.0-add-remove", "without-replacement-0.02-substitute"),
    ),
    "test_signs_are_dearer_than_gaussian_entries_and_cheaper_than_one_bound": (
        *("10-2.135", "2-2.0"),
    ),
    "test_the_plan_compares_joint_batches_with_poisson_for_every_number_of_colluders": ("0", "3"),
    "test_a_study_that_sends_ten_numbers_of_twenty_seven_trains": ("gaussian",),
    "test_with_hardly_any_noise_it_learns": ("gaussian",),
    "test_a_rehearsal_has_the_law_of_a_run": (', projection = 20, download = "bfloat16"',),
    "test_a_finished_run_is_not_made_again_and_a_lost_one_is": ("scaling", "fat_clients"),
    "test_every_step_is_taken_along_the_lifted_sum": ("gaussian-0", "sign-0"),
    "test_the_revealed_numbers_have_the_planned_noise": ("gaussian",),
    "test_every_sum_and_step_of_an_honest_run_is_made_again": (
        *("gaussian-projection", "sign-projection"),
    ),
    "test_every_experiment_writes_table_figure_and_how_it_was_made": (
        *("utility", "projection", "effective_rate", "joining", "degradation"),
    ),
    "test_every_experiment_writes_table_summary_figure_and_how_it_was_made": (
        *("fat_clients", "scaling"),
    ),
    "test_a_finished_run_is_not_made_again": (
        *("utility", "projection", "effective_rate", "joining", "degradation"),
    ),
    "test_the_decoded_sum_is_the_sum_of_what_was_encoded": ("100-0-16", "100-0-32", "100-0-64"),
    "test_no_random_schedule_breaks_a_law": ("pairwise-25", "nodes-25"),
    "test_a_server_restarted_in_every_phase_costs_nothing": ("pairwise", "full-shares"),
    "test_projection_at_the_papers_noise": ("100-0.937-1.83-0.930", "1000-1.260-1.62-1.259"),
    "test_the_gathered_mixture_is_above_the_whole_one_by_little": (
        *("substitute-0-exchange_stick-2.0-10", "substitute-0-exchange_stick-2.0-400"),
    ),
    "test_a_joint_seed_that_could_have_been_chosen_is_found": ("revealed_late--",),
    "test_a_leak_that_is_planted_on_purpose_is_found": ("keeps_coded", "prints", "warns"),
    "test_nothing_planted_leaves_a_silo_in_a_whole_run": ("0",),
    "test_the_certificate_is_added_to_every_exposure_and_at_every_step": ("one2",),
    "test_two_sampled_steps_equal_the_direct_integral": ("0.8-1.5",),
    "test_p15_two_processes_cannot_overspend_together": ("the study's attempts",),
    "test_p15_a_disk_that_fills_up_stops_the_answer_and_loses_no_row": ("61111", "100001"),
    "test_a_list_that_is_lost_is_charged_to_the_end_of_its_epoch": ("static",),
    "test_rare_large_losses_leave_a_narrow_bracket": ("0.8",),
    "test_a_request_that_is_no_parcel_names_the_relay": ("a million parts-nodes",),
    "test_a_reader_who_hangs_up_causes_no_noise": ("flag0-True", "flag1-False"),
    "test_output_that_cannot_be_written_is_no_success": ("False",),
    "test_training_without_torch_says_what_to_install": ("audit",),
    "test_every_kind_of_target_is_learned": ("count",),
    "test_killed_at_a_named_point": (
        *("Transcript-seal-after", "loop-train-before", "run_folder-write_model-after"),
        "checkpoint-write_checkpoint-after",
    ),
    "test_random_cuts_lose_nothing_and_everybody_comes_back": ("2-4",),
    "test_delta_near_one_is_a_number": ("0.3-0.9-1000000-0.0",),
    # Without parameters: what others hold more quickly.
    "test_hubbub_and_the_trusted_aggregator_are_compared_at_the_same_noise": ("",),
    "test_joining_compares_everybody_at_one_epsilon": ("",),
    "test_degradation_keeps_its_promise_and_rises_beyond_it": ("",),
    "test_the_mixture_costs_less_than_any_quantile": ("",),
    "test_what_is_multiplied_of_the_papers_ways_is_written_beside_it": ("",),
    "test_fat_silos_are_on_the_graph_that_the_row_names": ("",),
    "test_scaling_says_what_each_process_took_at_its_most": ("",),
    "test_a_heavy_tail_of_shifts_is_bracketed_where_guesses_are_five_times_too_large": ("",),
    "test_mails_without_information_cannot_be_learned": ("",),
    "test_joint_batches_are_charged_by_the_life_of_their_lists": ("",),
    "test_the_attack_breaks_the_claim_per_step_of_kept_lists_and_no_other": ("",),
    "test_the_secure_sum_is_the_plain_sum": tuple(
        f"{silos}-{nodes}-{bits}"
        for silos, nodes, bits in product((2, 3, 10), (0, 1, 3), (16, 64))
        if (silos + nodes + bits // 16) % 2
    ),
    "test_all_silos_but_two_cannot_tell_the_two_apart": (
        *("both mix-by_likeness", "only 1-in_order", "only 2-by_likeness"),
    ),
    "test_no_record_contributes_more_than_clip_whatever_the_matrices": (
        *("chain-all_zero", "vmap-ordinary", "vmap-lined_up", "loop-huge", "loop-overflowing"),
    ),
    "test_sums_by_patient_are_those_of_a_plain_loop": (
        *("small-1", "small-5", "wide-2", "wide-5", "words-1", "words-5", "images-1", "images-5"),
    ),
    "test_all_rows_of_a_patient_together_move_the_sum_by_at_most_the_clip": ("wide-vmap",),
    "test_an_honest_run_with_joint_batches_holds": ("per-step",),
    "test_baselines_project_too_unless_they_keep_no_privacy": (
        *("gaussian-trusted", "gaussian-local-dp", "gaussian-alone", "gaussian-non-private"),
    ),
    "test_every_ledger_holds_the_projected_studys_epsilon": ("gaussian",),
    "test_p5_rounded_sums_are_within_kappa_of_the_smoothed_gaussian": (
        "(1.5, 1.5, 1.5)-2.9e-13-4.54e-10",
    ),
    "test_p25_the_errors_of_prefix_sums_are_those_of_the_page": (
        *("4.0-16-0.635-0.613", "2.0-8-0.793-0.78"),
    ),
    "test_the_committed_value_is_what_the_oracle_says": (
        *("power-substitute-0.01", "power-substitute-0.3"),
        *("power-add-remove-0.0001", "power-add-remove-0.3"),
    ),
    "test_other_rare_losses_leave_a_narrow_bracket": (
        *("0.5-1e-06-1000000-1e-09", "0.45-1e-07-1000000-1e-09"),
    ),
    "test_a_run_learns_and_leaves_a_whole_folder": (
        *("trusted-2", "local-dp-2", "alone-2", "non-private-2"),
    ),
    "test_a_refusal_in_words_of_its_own_names_who_signed_it": (
        *("protocol-mallory", "protocol- and ", "protocol-ann and ann", "no-reason-"),
    ),
    "test_absurd_counts_of_attempts_name_who_signed_them": ("a float", "infinite", "nan", "true"),
    "test_a_false_model_is_neither_answered_nor_paid_for": (
        *("no frame", "round 0", "short", "of too few", "two frames"),
    ),
    "test_a_relay_that_takes_parts_of_an_answer_away_has_nobody_blamed": (
        *("all keys", "a seed", "one key", "a word of its own"),
    ),
    "test_with_the_same_places_the_model_has_the_same_bits_as_in_one_process": ("per-epoch",),
    "test_a_study_with_joint_batches_is_trained_apart": ("per-epoch-0", "static-0"),
    "test_serve_goes_on_with_a_new_list_after_the_aggregators_end": ("per-epoch",),
    "test_the_ledger_has_a_row_for_every_attempt_or_epoch_and_the_plans_epsilon": ("static",),
    "test_with_drop_outs_a_run_goes_on_without_who_is_gone": ("before-nodes", "after-pairwise"),
    "test_a_signed_vector_of_another_length_stops_the_study_by_name": (
        *("0-nodes", "41-pairwise", "43-nodes"),
    ),
    "test_a_false_end_leaves_no_model_and_no_words": (
        *("a model too long", "sessions of no kind", "a model of no numbers", "without CLOSE"),
    ),
    "test_what_a_silo_says_in_the_end_cannot_stop_the_evidence": (
        *("nothing", "a number", "deep in a table", "of the wrong kinds"),
    ),
    "test_without_a_nodes_total_there_is_no_sum": ("altered", "cut", "empty", "missing"),
    "test_a_spoilt_answer_is_not_in_a_sum_of_nodes": ("lost", "no bytes", "junk", "cut"),
    "test_a_spoilt_answer_abandons_a_pairwise_attempt": ("altered", "empty", "junk", "missing"),
    "test_a_bad_share_costs_one_attempt_and_one_charge_of_each": (
        *("both-later", "both-garbage", "one-longer", "one-unsigned"),
    ),
    "test_an_answer_that_is_no_parcel_counts_as_none": (
        *("four bytes", "another kind", "cut in a length", "longer", "megabytes"),
    ),
    "test_an_opening_that_cannot_be_read_names_the_aggregator": (
        *("nothing-pairwise", "not json-nodes", "a list-pairwise", "deep-nodes"),
        *("deeper-pairwise", "a huge number-nodes", "terms are a number-pairwise"),
        "nothing of standardisation-nodes",
    ),
    "test_what_is_garbled_on_the_way_costs_the_session_and_blames_nobody": ("wrap", "look"),
    "test_p15_a_flip_of_any_byte_of_a_row_is_noticed": (
        *("text-1-1", "text-1-4", "signature-2-0", "signature-2-2"),
    ),
}
# The other way round, where few cases are quick: each value of each parameter is in one of them.
QUICK = {
    # One for each way to sample, and for the quickest projection and list.
    "test_a_sound_study_is_not_contradicted": (
        *("poisson", "everybody", "correlated", "by layers", "one list"),
    ),
    "test_canaries_are_as_strong_as_the_account_takes_records_to_be": (
        *("substitute", "everybody", "full shares", "colluders"),
    ),
    "test_a_defect_is_found": (
        *("less noise", "no clipping", "a share left out"),
        *("mask used again", "matrices of layers kept", "one batch for ever"),
    ),
    "test_p15_a_cap_of_the_other_relation_is_charged_too": (
        *("-per-step", "gaussian-poisson", "sign-per-epoch", "layers-static"),
    ),
    "test_p15_the_ledger_charges_what_the_plan_says": (
        *("add-remove--poisson", "add-remove-sign-poisson", "add-remove-layers-poisson"),
        *("substitute--per-step", "substitute-gaussian-poisson", "substitute-sign-per-epoch"),
        "substitute-layers-static",
    ),
    "test_serve_goes_on_wherever_the_aggregators_process_ended": (
        *("before-0-4", "amid-0-1", "amid-0-12", "amid-2-4", "after-2-7"),
    ),
    "test_who_restarts_in_set_up_is_in_the_next": (
        *("0-bob-ping-before", "0-bob-open-after", "0-bob-commit-before", "0-bob-reveal-after"),
        *("2-bob-contribute-after", "2-node-2-confirm-before", "2-node-2-finish-after"),
    ),
    "test_a_run_goes_on_with_who_was_restarted_in_a_round": (
        *("0-bob-model-1-before", "0-bob-model-4-before", "2-bob-model-4-after"),
        *("2-node-2-total-1-before", "2-node-2-total-2-after"),
    ),
    "test_who_restarts_while_a_list_is_made_is_in_the_next": (
        *("list-after", "show-before", "mix-after", "take-before"),
    ),
    "test_a_disk_that_is_full_from_the_start_says_so": ("0", "4096"),
    "test_the_least_radius_costs_nothing_worth_speaking_of": (
        *("add-remove-0-removal_stick-1.0-3", "add-remove-1-addition_stick-1.0-30"),
    ),
    "test_no_call_with_junk_is_answered": tuple(
        f"{('none', 'empty', 'junk')[number % 3]}-{number}" for number in range(10)
    ),
    "test_where_nobody_may_be_missing_the_missing_one_is_named": (
        *("lost-pairwise", "altered-nodes", "altered in the vector-pairwise", "cut-nodes"),
        *("empty-pairwise", "no bytes-nodes", "junk-pairwise", "missing-nodes"),
    ),
    "test_who_does_not_come_back_is_waited_for_and_then_named": (
        *("bob-ping", "bob-contribute", "node-1-open", "node-1-finish"),
    ),
    "test_a_lost_answer_in_set_up_is_waited_for": (
        *("0-commit", "0-contribute", "0-finish", "2-confirm"),
    ),
    "test_frames_of_another_silo_are_not_taken_for_ones_own": (
        *("0-reveal", "0-confirm", "2-contribute", "2-finish"),
    ),
    "test_a_relay_that_corrupts_every_set_up_ends_the_run": (
        *("0-commit", "0-contribute", "0-finish", "2-confirm"),
    ),
    "test_a_corrupted_request_in_set_up_is_refused_and_made_good": (
        *("0-reveal", "0-confirm", "2-contribute", "2-finish"),
    ),
    "test_p1_no_batch_in_the_plane_exceeds_the_fifth_row": ("0.1-1.05", "0.5-0.7", "0.5-4.0"),
    "test_fifty_digits_agree": ("rem",),
    "test_a_run_that_is_stopped_again_and_again_never_spends_more": (
        *("per-step-3", "static-1", "per-epoch-5"),
    ),
}

UNKNOWN = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes long."""
    found: dict[str, set[str]] = {}
    for item in items:
        name, _, case = item.name.partition("[")
        case = case.removesuffix("]")
        found.setdefault(name, set()).add(case)
        if case in LONG.get(name, ()) or case not in QUICK.get(name, (case,)):
            item.add_marker("slow")
    if any(Path(one) in (Path(__file__).parent, Path("tests")) for one in config.args):
        config.stash[UNKNOWN] = [
            f"{name}[{case}]"
            for name, cases in (*LONG.items(), *QUICK.items())
            for case in set(cases) - found.get(name, set())
        ]


@pytest.fixture
def unknown_cases(request: pytest.FixtureRequest) -> list[str]:
    """What is called long or quick here and is no test; nothing unless all tests are collected."""
    return request.config.stash.get(UNKNOWN, [])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """What was imported stays: it is looked through for garbage no more."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_disks() -> Iterator[None]:
    """No test in this process could show what is lost with the power; the ledger syncs itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield

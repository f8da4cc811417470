"""The mistakes: for each place in the table of rules one at least, and the test that finds it."""

from __future__ import annotations

from typing import Final

from tests.rules.mutation import Mutation

__all__ = ["MUTATIONS"]


_S: Final = "sdk/instep/sequencing/"
_TS: Final = "tests/instep/sequencing/"
_NUMBERS: Final = [
    Mutation(
        "S1",
        f"{_S}sequencer.py::Sequencer._one_by_one",
        "                number < next_number\n",
        "                number < 0\n",
        f"{_TS}test_sequencer.py::test_s1_a_copy_is_acknowledged_again_and_not_delivered_again",
    ),
    Mutation(
        "S1",
        f"{_S}sequencer.py::Sequencer._not_new",
        "outcome.duplicates.append(message)",
        "outcome.refused.append((message, Refusal.GIVEN_UP))",
        f"{_TS}test_sequencer.py::test_s1_of_two_copies_that_come_together_the_first_counts",
    ),
    Mutation(
        "S2",
        f"{_S}window.py::ReceiveWindow.advance",
        "number = skippable.end_of(number)",
        "number = skippable.end_of(number) + 1",
        f"{_TS}test_sequencer.py::test_s2_no_number_is_skipped_but_one_that_needs_no_message",
    ),
    Mutation(
        "S2",
        f"{_S}sequencer.py::Sequencer._take_ahead",
        "if not self.settings.ordered:",
        "if number:",
        f"{_TS}test_sequencer.py::test_s2_no_number_is_skipped_but_one_that_needs_no_message",
    ),
    Mutation(
        "S3",
        f"{_S}sequencer.py::Sequencer.claims",
        "state or self.durable",
        "state or self.checkpoint()",
        f"{_TS}test_sequencer.py::test_s3_received_is_claimed_only_after_the_commit",
    ),
    Mutation(
        "S3",
        f"{_S}sequencer.py::Sequencer.roll_back",
        "self._load(self.durable)",
        "self._load(self.checkpoint())",
        f"{_TS}test_sequencer.py::test_s3_a_commit_that_failed_is_as_if_nothing_had_come",
    ),
    Mutation(
        "S3",
        "sdk/instep/runtime/messages/intake.py::MessageIntake._commit",
        "await self._store.commit(message_group)",
        "asyncio.ensure_future(self._store.commit(message_group))",
        "tests/instep/runtime/messages/test_intake.py::test_nothing_is_answered_before_its_commit",
    ),
    Mutation(
        "S4",
        f"{_S}gaps.py::GapTimer.act",
        "len(self.asked_to) < settings.gap_attempts",
        "True",
        f"{_TS}test_sequencer_gaps.py::test_s4_wait_is_bounded_too",
    ),
    Mutation(
        "S4",
        f"{_S}gaps.py::GapTimer.act",
        "if number >= missing",
        "if number",
        f"{_TS}test_sequencer_gaps.py::test_s4_a_gap_that_was_never_asked_for_is_asked_for_first",
    ),
    Mutation(
        "S4",
        f"{_S}sequencer.py::Sequencer._act_on_gap",
        "if policy is GapPolicy.RESEND:",
        "if policy is GapPolicy.WAIT:",
        f"{_TS}test_sequencer_gaps.py::test_s4_resend_asks_for_all_gaps_and_then_takes_the_last_resort",
    ),
    Mutation(
        "S5",
        f"{_S}sequencer.py::Sequencer._cancel",
        "for gap in window.received.gaps(low, high):",
        "for gap in [(low, high)]:",
        f"{_TS}test_sequencer.py::test_s5_cancel_3_to_5",
    ),
    Mutation(
        "S5",
        f"{_S}window.py::ReceiveWindow.add_cancelled",
        "self.cancelled.update(numbers)",
        "self.cancelled = numbers",
        f"{_TS}test_sequencer.py::test_s5_cancellations_are_cumulative",
    ),
    Mutation(
        "S5",
        f"{_S}sequencer.py::Sequencer._fill",
        "numbers = self._window, Ranges.of(*ranges)",
        "numbers = self._window, Ranges.of(*ranges) - self._window.cancelled",
        f"{_TS}test_sequencer.py::test_s5_fill_7_to_9",
    ),
    Mutation(
        "S5",
        f"{_S}window.py::ReceiveWindow.add_filled",
        "        self.cancelled.subtract(numbers)\n",
        "",
        f"{_TS}test_sequencer.py::test_s5_fill_7_to_9",
    ),
    Mutation(
        "S6",
        f"{_S}sequencer.py::Sequencer._begin",
        "self._fault(expired, Refusal.EXPIRED, outcome)",
        "self._drop(expired, Refusal.EXPIRED, outcome)",
        f"{_TS}test_sequencer.py::test_s6_an_undelivered_message_is_faulted_at_its_deadline_though_acknowledged",
    ),
    Mutation(
        "S6",
        f"{_S}sequencer.py::Sequencer._take_ahead",
        "if 0 < message.expires_at_us <= now_us:",
        "if message.expires_at_us < 0:",
        f"{_TS}test_sequencer.py::test_s6_an_expired_message_is_never_delivered_even_before_a_tick",
    ),
    Mutation(
        "S7",
        f"{_S}sequencer.py::Sequencer._not_new",
        "elif digest != message.digest:",
        "elif message.number < 0:",
        f"{_TS}test_sequencer_envelope.py::test_s7_other_content_without_a_fault_of_ours_is_handled_as_chosen",
    ),
    Mutation(
        "S7",
        f"{_S}sequencer.py::Sequencer._apply_changed_content",
        "if policy is ChangedContentPolicy.REALIGN and",
        "if policy is ChangedContentPolicy.IGNORE and",
        f"{_TS}test_sequencer_envelope.py::test_s7_other_content_without_a_fault_of_ours_is_handled_as_chosen",
    ),
    Mutation(
        "S7",
        f"{_S}window.py::ReceiveWindow.remember_contents",
        "self.faulted.subtract(Ranges.of_numbers(numbers))",
        "return",
        f"{_TS}test_sequencer_envelope.py::test_s7_after_a_fault_the_new_content_counts",
    ),
    Mutation(
        "S8",
        f"{_S}window.py::ReceiveWindow.has_room",
        "<= settings.limit_messages",
        "<= settings.max_number",
        f"{_TS}test_sequencer_bounds.py::test_s8_full_by_messages_refuses_and_loses_nothing",
    ),
    Mutation(
        "S8",
        f"{_S}window.py::ReceiveWindow.has_room",
        "self.buffered_bytes + size_bytes <=",
        "size_bytes <=",
        f"{_TS}test_sequencer_bounds.py::test_s8_full_by_bytes",
    ),
    Mutation(
        "S8",
        f"{_S}sequencer.py::Sequencer._enforce_gap_limit",
        "self._window.lasting_ranges() > limit",
        "not limit",
        f"{_TS}test_sequencer_unordered.py::test_s8_gaps_are_bounded",
    ),
    Mutation(
        "S9",
        f"{_S}sequencer.py::Sequencer.open",
        "            attributes=attributes,\n",
        "",
        f"{_TS}test_sequencer_life.py::test_s9_what_came_over_the_wire_is_durable_before_message_1",
    ),
    Mutation(
        "S9",
        f"{_S}sequencer.py::Sequencer.__init__",
        "opened_with or settings or",
        "settings or",
        f"{_TS}test_sequencer_life.py::test_s9_what_came_over_the_wire_is_durable_before_message_1",
    ),
    Mutation(
        "S10",
        f"{_S}lifetime.py::Lifetime.timeout",
        "SequenceEvent.EXPIRED if",
        "SequenceEvent.IDLE if",
        f"{_TS}test_sequencer_life.py::test_s10_a_sequence_expires_and_its_peer_is_notified",
    ),
    Mutation(
        "S10",
        f"{_S}lifetime.py::Lifetime.restart_idle_time",
        "if self._idle_us and",
        "if not self.active_at_us and",
        f"{_TS}test_sequencer_life.py::test_s10_idle_time_begins_again_with_each_sign_of_the_peer",
    ),
    Mutation(
        "S10",
        f"{_S}lifetime.py::Lifetime.forget_at_us",
        "max(self.ended_at_us + self._keep_us, copies_until_us)",
        "self.ended_at_us + self._keep_us",
        f"{_TS}test_sequencer_life.py::test_s10_an_ended_sequence_is_remembered_while_copies_may_come",
    ),
    Mutation(
        "S11",
        f"{_S}sequencer.py::Sequencer.apply",
        "self._load(before)",
        "self._settle(Decision())",
        f"{_TS}test_sequencer_envelope.py::test_s11_all_or_nothing",
    ),
    Mutation(
        "S11",
        f"{_S}sequencer.py::Sequencer._apply",
        "            self._settle(outcome)\n",
        "",
        f"{_TS}test_sequencer_envelope.py::test_s11_a_cancelled_gap_holds_nothing_back_from_the_close_behind_it",
    ),
    Mutation(
        "S12",
        f"{_S}outbox.py::Outbox.tick",
        "if r not in away",
        "if r",
        f"{_TS}test_outbox.py::test_who_is_away_costs_the_others_nothing_and_nothing_is_counted_for_them",
    ),
    Mutation(
        "S12",
        "sdk/instep/runtime/messages/outbound.py::EffectDispatcher._next",
        "elif self._busy[peer] < self._limits.effects_per_peer:",
        "else:",
        "tests/instep/runtime/messages/test_outbound.py::test_a_peer_that_never_answers_holds_up_no_other",
    ),
]


_A: Final = "sdk/instep/alignment/"
_TA: Final = "tests/instep/alignment/"
_E: Final = "store/instep_sql/entities/"
_TE: Final = "tests/instep_sql/entities/"
_L: Final = "spark_sink/instep_spark/lake/"
_TL: Final = "tests/instep_spark/lake/"
_TB: Final = "tests/instep_tapi/restconf/test_baseline.py"
_LOGS: Final = [
    Mutation(
        "A1",
        f"{_A}machine.py::Alignment.committed",
        "self.position = self.durable = position",
        "self.position = position",
        f"{_TA}test_machine.py::test_a1_a_batch_that_was_not_committed_is_asked_for_again",
    ),
    Mutation(
        "A1",
        f"{_E}commit.py::commit",
        "fencing.advance_stream(connection, dialect, stream.no, batch, now_us)",
        "fencing.advance_stream(connection, dialect, stream.no, batch, now_us)\n"
        "    connection.commit()",
        f"{_TE}test_commit.py::test_a1_nothing_of_a_refused_batch_is_stored",
    ),
    Mutation(
        "A2",
        f"{_A}continuity.py::classify",
        "Continuity.REDELIVERED if has_older_entity else",
        "Continuity.RESTARTED if has_older_entity else",
        f"{_TA}test_machine.py::test_a2_redelivered_a_little_opens_no_attempt",
    ),
    Mutation(
        "A2",
        f"{_A}continuity.py::_proven",
        "Continuity.RESTARTED if has_older_entity else",
        "",
        f"{_TA}test_machine.py::test_a2_restarted_where_an_older_entity_is_stored_is_opened_again",
    ),
    Mutation(
        "A2",
        f"{_A}machine.py::Alignment._on_continuity",
        "if continuity is Continuity.REDELIVERED:",
        "if continuity is not Continuity.UNDECIDED:",
        f"{_TA}test_machine.py::test_a2_restarted_where_an_older_entity_is_stored_is_opened_again",
    ),
    Mutation(
        "A3",
        "sdk/instep/model/ordering.py::supersedes",
        "stored.offset > incoming.offset",
        "stored.offset >= incoming.offset",
        "tests/instep/model/test_ordering.py::test_a3_in_python",
    ),
    Mutation(
        "A3",
        "sdk/instep/model/ordering.py::supersedes_sql",
        "THEN {stored.offset} > {incoming.offset}",
        "THEN {stored.appended_at} > {incoming.appended_at}",
        "tests/instep/model/test_ordering.py::test_a3_in_sqlite",
    ),
    Mutation(
        "A3",
        "sdk/instep/model/ordering.py::rounds_per_key",
        "if not before:",
        "if latest:",
        f"{_TE}test_commit.py"
        "::test_a3_what_is_stored_and_journaled_does_not_depend_on_where_batches_end",
    ),
    Mutation(
        "A3",
        f"{_L}sql/supersede.py::effective_rows",
        "WHEN row.batch AND stored.alive AND",
        "WHEN row.batch AND NOT stored.alive AND",
        f"{_TL}sql/test_supersede.py::test_a3_statements_count_as_one_by_one",
    ),
    Mutation(
        "A4",
        "sdk/instep/model/records.py::Record.__post_init__",
        "elif self.ends is not True:",
        "elif self.kind is RecordType.DELETE:",
        "tests/instep/model/test_records.py::test_a4_what_ends_follows_from_the_kind",
    ),
    Mutation(
        "A4",
        "adapters/instep_tapi/wire/record_body.py::states_clear",
        "    if not states:\n",
        "    if cleared:\n",
        "tests/instep_tapi/wire/test_decoder.py"
        "::test_4_4_the_state_of_the_detector_overrules_a_legacy_severity",
    ),
    Mutation(
        "A5",
        f"{_A}sweep_trigger.py::PartitionProgress.sweep_due",
        "return all(",
        "return any(",
        f"{_TA}test_sweep_trigger.py::test_each_partition_must_have_passed_by_itself",
    ),
    Mutation(
        "A5",
        f"{_A}sweep_trigger.py::PartitionProgress._passed",
        "age_us < self._compaction_delay_us and",
        "",
        f"{_TA}test_sweep_trigger.py::test_a_record_older_than_the_compaction_delay_does_not_pass",
    ),
    Mutation(
        "A5",
        f"{_E}sweep.py::sweep",
        "UnmarkedRows.of(stream.no, step.attempt, cursor",
        "UnmarkedRows.of(stream.no, step.attempt + 1, cursor",
        f"{_TE}test_sweep.py::test_a5_new_records_are_applied_while_it_runs",
    ),
    Mutation(
        "A6",
        f"{_A}machine.py::Alignment.sweep_estimated",
        "estimate.unmarked > estimate.total * share",
        "estimate.unmarked > estimate.total",
        f"{_TA}test_machine_sweep.py::test_a6_a_sweep_of_too_much_is_held_until_it_is_released",
    ),
    Mutation(
        "A6",
        f"{_A}machine.py::Alignment.sweep_estimated",
        "estimate.unmarked > least and",
        "",
        f"{_TA}test_machine_sweep.py::test_a6_a_few_are_not_too_much_whatever_their_share",
    ),
    Mutation(
        "A6",
        f"{_L}sweeps.py::apply_due_sweeps",
        "if guarded and found.unmarked",
        "if not guarded and found.unmarked",
        f"{_TL}test_lake.py::test_a_sweep_that_would_remove_too_much_is_held_and_released",
    ),
    Mutation(
        "A7",
        f"{_A}resume.py::resume_point",
        "position.phase is Phase.BASELINING:",
        "position.phase is not Phase.ALIGNED:",
        f"{_TA}test_machine_st_2.py::test_a7_an_interrupted_attempt_goes_on_after_its_own_token",
    ),
    Mutation(
        "A7",
        f"{_A}resume.py::new_attempt",
        "barrier = _furthest(position.barrier, barrier)",
        "pass",
        f"{_TA}test_resume.py"
        "::test_an_attempt_started_anew_keeps_the_furthest_goal_of_each_partition",
    ),
    Mutation(
        "A7",
        f"{_E}sweep.py::sweep",
        '{"cursor": step.cursor, "size"',
        '{"cursor": 0, "size"',
        f"{_TE}test_sweep.py::test_a7_an_interrupted_sweep_goes_on_from_its_cursor",
    ),
    Mutation(
        "A8",
        f"{_A}lag.py::LagMonitor.lost",
        "delay_s <= keeps_s or",
        "delay_s >= 0 or",
        f"{_TA}test_machine_lag.py::test_a8_a_reader_too_slow_realigns_without_waiting_to_be_dropped",
    ),
    Mutation(
        "A8",
        f"{_A}machine.py::Alignment._lost",
        "self._move(AlignmentEvent.LOST)",
        "pass",
        f"{_TA}test_machine_lag.py::test_a8_3_17_3_after_the_last_realignment_an_end_may_be_missed_and_that_is_said",
    ),
    Mutation(
        "A9",
        f"{_A}sweep_trigger.py::PartitionProgress._follow_each",
        "elif offset < last:",
        "elif offset < 0:",
        f"{_TA}test_machine_lag.py::test_a9_an_offset_going_backwards_is_counted_and_left_to_the_store",
    ),
    Mutation(
        "A9",
        f"{_A}plausibility.py::PlausibilityCheck._mended",
        "record = msgspec.structs.replace(record, offset=-1)",
        "pass",
        f"{_TA}test_plausibility.py::test_a9_what_is_far_ahead_pins_no_entity",
    ),
    Mutation(
        "A10",
        f"{_A}commit_batches.py::decode_chunk",
        "(*chunk.deviations.items(), *found.deviations.items())",
        "found.deviations.items()",
        f"{_TA}test_machine_lag.py::test_a10_deviations_of_the_frames_travel_with_the_batch",
    ),
    Mutation(
        "A10",
        "store/instep_sql/deviations.py::count_deviations",
        "counts.get(kind, 0) + count",
        "count",
        f"{_TE}test_commit.py::test_a10_deviations_are_counted",
    ),
    Mutation(
        "A11",
        f"{_A}commit_batches.py::decode_chunk",
        "[*chunk.unreadable, *found.unreadable]",
        "found.unreadable",
        f"{_TA}test_machine_lag.py::test_a11_what_cannot_be_read_travels_with_the_batch_and_moves_no_token",
    ),
    Mutation(
        "A11",
        f"{_E}quarantine.py::keep",
        "            one.raw,",
        '            b"",',
        "tests/instep_sql/test_reader.py"
        "::test_a11_what_cannot_be_read_is_kept_with_bytes_token_and_reason",
    ),
    Mutation(
        "A11",
        f"{_E}replay.py::replay",
        "quarantine.mark_replayed(connection, entry, now_us)",
        "pass",
        "tests/instep_sql/test_reader.py::test_a11_a_replay_commits_by_a3_and_makes_room",
    ),
    Mutation(
        "A11",
        "spark_sink/instep_spark/landing/quarantine.py::Quarantine.keep",
        "if name not in kept.digests",
        "if one",
        "tests/instep_spark/landing/test_sink_refusals.py::test_what_cannot_be_read_is_kept_once",
    ),
    Mutation(
        "A12",
        f"{_A}audit.py::CatchUpDetector._passed",
        "later or silent_us",
        "silent_us",
        f"{_TA}test_audit.py::test_a_record_after_the_moment_is_arrival",
    ),
    Mutation(
        "A12",
        f"{_A}audit.py::CatchUpDetector.arrived",
        "return all(",
        "return any(",
        f"{_TA}test_audit.py::test_every_partition_must_have_arrived",
    ),
    Mutation(
        "A12",
        f"{_E}alike.py::completed",
        "stated if whole == one else",
        "stated if whole else",
        f"{_TE}test_key_reconciliation.py"
        "::test_a12_a_baseline_never_writes_less_than_what_is_stored",
    ),
    Mutation(
        "A13",
        "adapters/instep_tapi/wire/context_tree.py::_kept",
        "if found in cut and",
        "if found not in cut and",
        f"{_TB}::test_a13_3_8_1_2_nothing_is_cut_that_no_followed_stream_carries",
    ),
    Mutation(
        "A13",
        "adapters/instep_tapi/wire/context_tree.py::_entity_class",
        "return None if later in _KNOWN_CLASSES or",
        "return None if",
        f"{_TB}::test_a13_3_8_1_2_a_reference_is_no_statement",
    ),
    Mutation(
        "A13",
        "adapters/instep_tapi/restconf/baseline_rows.py::page_records",
        "if all(entity.content == first.content for entity in whole):",
        "if whole:",
        f"{_TB}::test_a13_statements_of_one_uuid_that_differ_are_one_for_each_place",
    ),
    Mutation(
        "A13",
        f"{_E}key_reconciliation.py::_Rows.of",
        "if not (places and row.places) or places & row.places",
        "if row",
        f"{_TE}test_key_reconciliation.py"
        "::test_a13_3_8_1_2_one_uuid_stated_differently_is_one_row_a_place",
    ),
    Mutation(
        "A13",
        f"{_E}alike.py::alike",
        "if contained:",
        "if not contained:",
        f"{_TE}test_key_reconciliation.py"
        "::test_a13_what_differs_only_in_contained_entities_is_no_change",
    ),
    Mutation(
        "A13",
        "spark_sink/instep_spark/identity.py::Identities._of",
        "if one.is_at(places)",
        "if one",
        "tests/instep_spark/test_identity.py::test_a13_ids",
    ),
    Mutation(
        "A14",
        f"{_A}machine.py::Alignment.baseline_page",
        "_NO_LOG if self.position.opened_at_newest else None",
        "None",
        f"{_TA}test_machine_lag.py::test_a14_rows_of_a_baseline_compare_with_no_record_that_comes_later",
    ),
    Mutation(
        "A14",
        f"{_A}sweep_trigger.py::PartitionProgress._shown_before",
        "return self._shown and",
        "return not self._shown and",
        f"{_TA}test_machine_lag.py::test_a14_what_goes_back_behind_the_baseline_is_dropped",
    ),
    Mutation(
        "A14",
        f"{_E}key_reconciliation.py::give_way",
        "SET lineage = -1",
        "SET lineage = lineage",
        f"{_TE}test_key_reconciliation.py"
        "::test_a14_a_baseline_beats_an_earlier_one_whatever_the_clock_said",
    ),
    Mutation(
        "A14",
        f"{_E}sweep.py::sweep",
        "SET lineage = 0 WHERE",
        "SET lineage = lineage WHERE",
        f"{_TE}test_key_reconciliation.py"
        "::test_a14_3_8_1_2_after_the_sweep_the_stream_beats_the_baseline",
    ),
    Mutation(
        "A14",
        f"{_L}sql/supersede.py::row_supersedes",
        " AND NOT ({baselines})",
        "",
        f"{_TL}test_lake.py::test_a14_of_two_baselines_the_later_one_counts",
    ),
    Mutation(
        "A14",
        f"{_L}sql/supersede.py::outdated",
        "WHEN ordinal <= swept THEN ''",
        "WHEN ordinal < 0 THEN ''",
        f"{_TL}test_lake.py"
        "::test_a14_a_baseline_that_is_read_after_a_sweep_beats_all_that_was_stored",
    ),
    Mutation(
        "A15",
        "adapters/instep_tapi/endpoints/selection.py::log_mode",
        "if type_.forgets:",
        "if not type_.storage_strategy:",
        "tests/instep_tapi/endpoints/test_selection.py"
        "::test_a15_4_3_5_a_log_that_forgets_live_entities_cannot_give_state",
    ),
    Mutation(
        "A15",
        f"{_A}resume.py::retention_s",
        "if stream.compacts:",
        "if not stream.compacts:",
        f"{_TA}test_resume.py"
        "::test_a15_a_compacted_log_that_forgets_keeps_neither_records_nor_ends_for_long",
    ),
    Mutation(
        "A16",
        f"{_A}reading_progress.py::ReadingProgress.ended",
        "place > known.get(partition, -1)",
        "place >= known.get(partition, -1)",
        f"{_TA}test_reading_progress.py::test_a16_to_read_the_same_again_is_no_progress",
    ),
    Mutation(
        "A16",
        "sdk/instep/runtime/retry.py::ReconnectPacing.wait_s",
        "        if fruitful:\n",
        "        if fruitful or reopens:\n",
        "tests/instep/runtime/test_retry.py::test_a16_only_a_fruitful_connection_resets_the_back_off",
    ),
]

_LAKE: Final = [
    Mutation(
        "L1",
        f"{_L}sql/supersede.py::end_supersedes",
        'f"({row_supersedes(end, row)} AND',
        'f"(false AND',
        f"{_TL}test_lake.py::test_l1_a_second_reading_of_the_log_adds_no_episode_and_no_interval",
    ),
    Mutation(
        "L1",
        "spark_sink/instep_spark/identity.py::Identities._told",
        "return [made]",
        "return []",
        "tests/instep_spark/test_identity.py::test_l1_ids_do_not_depend_on_cuts",
    ),
    Mutation(
        "L2",
        f"{_L}batches/progress.py::metadata_of_content",
        "if upto is not None and commit.version > upto:",
        "if upto is None and not commit.version:",
        f"{_TL}batches/test_progress.py::test_l2_what_a_restore_has_undone_is_no_progress",
    ),
    Mutation(
        "L3",
        f"{_L}rebuild.py::rebuild",
        "target.replace_by(spark, beside)",
        "pass",
        f"{_TL}test_lake.py::test_l3_a_table_is_made_again_beside_the_old_one",
    ),
    Mutation(
        "L3",
        f"{_L}rebuild.py::_refuse_without_first_rows",
        "if lost:",
        "if not progress:",
        f"{_TL}test_lake.py::test_l3_a_clone_is_made_again_and_what_changes_has_lost_is_not",
    ),
    Mutation(
        "L4",
        f"{_L}batches/micro_batch.py::_behind",
        "return rows_behind(rows, by_stream)",
        "return rows",
        f"{_TL}batches/test_micro_batch.py::test_l4_a_table_reads_the_rows_that_it_lacks",
    ),
]

MUTATIONS: Final = [*_LOGS, *_NUMBERS, *_LAKE    Mutation(
        "A20",
        f"{_A}stream_identity.py::match_streams",
        "elif any(alike(one, stream) for one in missing):",
        "elif False:",
        f"{_TA}test_stream_identity.py"
        "::test_a20_the_only_stream_of_the_same_content_is_doubtful_under_another_name",
    ),
    Mutation(
        "A20",
        f"{_A}stream_identity.py::choose_place",
        "if one.agrees]",
        "if one.common]",
        f"{_TA}test_stream_identity.py::test_a20_the_stream_that_agrees_most_is_taken",
    ),
]

"""Bugs that are easily made and hard to notice, each with a test that must fail where it stands."""

from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    file: str  # under src/aiayn
    old: str  # stands in the file exactly once
    new: str
    test: str  # under tests


MODEL = [
    Bug(
        "future_mask_off_by_one",
        "model/masks.py",
        "device=device).tril()",
        "device=device).tril(1)",
        "model/test_transformer.py::test_no_logit_changes_by_a_bit_when_later_target_tokens_change",
    ),
    Bug(
        "padding_mask_dropped_in_the_encoder",
        "model/layers.py",
        "self.self_attention(x, x, src_mask)",
        "self.self_attention(x, x, None)",
        "model/test_transformer.py::test_what_stands_at_padded_positions_changes_no_bit_of_the_logits",
    ),
    Bug(
        "padding_mask_dropped_in_the_decoder",
        "model/layers.py",
        "self.cross_attention(x, memory, src_mask)",
        "self.cross_attention(x, memory, None)",
        "model/test_transformer.py::test_what_stands_at_padded_positions_changes_no_bit_of_the_logits",
    ),
    Bug(
        "missing_root_of_d_model",
        "model/embedding.py",
        "F.embedding(ids, self.weight) * self.scale",
        "F.embedding(ids, self.weight)",
        "model/test_embedding.py::test_embeddings_are_scaled_by_the_root_of_d_model_and_outputs_are_not",
    ),
    Bug(
        "missing_root_of_d_k",
        "model/attention.py",
        "k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        "k.transpose(-2, -1)",
        "model/test_attention.py::test_attention_is_equation_1_written_out_as_a_loop",
    ),
    Bug(
        "root_of_d_model_instead_of_d_k",
        "model/attention.py",
        "k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        "k.transpose(-2, -1) / math.sqrt(q.size(-1) * q.size(1))",
        "model/test_attention.py::test_attention_is_equation_1_written_out_as_a_loop",
    ),
    Bug(
        "positions_begin_at_one",
        "model/embedding.py",
        "torch.arange(length, dtype=torch.float64)",
        "torch.arange(1, length + 1, dtype=torch.float64)",
        "model/test_embedding.py::test_sinusoids_are_the_closed_form_at_any_length",
    ),
    Bug(
        "cached_positions_off_by_one",
        "model/transformer.py",
        "self.tgt_positions(cache.length, 1)",
        "self.tgt_positions(cache.length + 1, 1)",
        "model/test_cache.py::test_steps_equal_full_recomputation_while_beams_reorder_and_sentences_leave",
    ),
    Bug(
        "output_matrix_untied",
        "model/transformer.py",
        "self.dropout = Dropout(config.dropout)",
        "self.embedding.project = nn.Linear(config.d_model, vocab_size, bias=False)\n"
        "        self.dropout = Dropout(config.dropout)",
        "model/test_embedding.py::test_source_target_and_output_share_one_matrix",
    ),
    Bug(
        "layer_norm_before_the_sum",
        "model/layers.py",
        "self.norm(x + self.dropout(sublayer))",
        "x + self.dropout(self.norm(sublayer))",
        "model/test_layers.py::test_the_encoder_layer_is_torchs_with_the_same_weights_under_padding",
    ),
    Bug(
        "dropout_on_the_residual",
        "model/layers.py",
        "self.norm(x + self.dropout(sublayer))",
        "self.norm(self.dropout(x + sublayer))",
        "model/test_layers.py::test_dropout_acts_on_the_sublayer_before_the_sum_and_never_on_the_residual",
    ),
    Bug(
        "no_dropout_on_the_embeddings_of_the_decoder",
        "model/transformer.py",
        "self.dropout(self.embedding(tgt_in) + self.tgt_positions(0, tgt_in.size(1)))",
        "self.embedding(tgt_in) + self.tgt_positions(0, tgt_in.size(1))",
        "model/test_transformer.py::test_dropout_stands_behind_both_embedding_sums_and_every_sublayer_and_nowhere_else",
    ),
    Bug(
        "window_reaches_one_too_far",
        "model/masks.py",
        "reach = window // 2",
        "reach = (window + 1) // 2",
        "model/test_windowed_attention.py::test_a_window_reaches_half_its_size_to_each_side_or_back_only_and_never_to_padding",
    ),
    Bug(
        "window_excludes_its_edge",
        "model/masks.py",
        "distance.abs() <= reach",
        "distance.abs() < reach",
        "model/test_windowed_attention.py::test_a_window_reaches_half_its_size_to_each_side_or_back_only_and_never_to_padding",
    ),
    Bug(
        "cached_window_off_by_one",
        "model/layers.py",
        "(self.window // 2 + 1) * x.size(1)",
        "(self.window // 2 + 2) * x.size(1)",
        "model/test_windowed_attention.py::test_cached_steps_equal_decoding_all_positions_at_once",
    ),
]

STEPS = [
    Bug(
        "reseeding_on_rank_0_only",
        "training/module.py",
        "torch.manual_seed(dropout_seed(self.seed, batch.number))",
        "torch.manual_seed(dropout_seed(self.seed, batch.number)) if self.trainer.global_rank == 0 else None",
        "training/test_module.py::test_dropout_depends_on_the_seed_and_the_micro_batch_and_on_nothing_else",
    ),
    Bug(
        "one_dropout_mask_for_all_micro_batches",
        "training/module.py",
        "dropout_seed(self.seed, batch.number)",
        "dropout_seed(self.seed, 0)",
        "training/test_module.py::test_dropout_depends_on_the_seed_and_the_micro_batch_and_on_nothing_else",
    ),
    Bug(
        "dropout_by_the_number_of_the_batch_on_its_device",
        "training/module.py",
        "dropout_seed(self.seed, batch.number)",
        "dropout_seed(self.seed, batch_idx)",
        "training/test_module.py::test_dropout_depends_on_the_seed_and_the_micro_batch_and_on_nothing_else",
    ),
    Bug(
        "boundary_of_a_part_off_by_one",
        "data/batch_plan.py",
        "self._parts[slot, part], self._parts[slot, part + 1]",
        "self._parts[slot, part], self._parts[slot, part + 1] + 1",
        "data/test_batch_plan.py::test_all_ranks_together_see_every_pair_exactly_once_an_epoch_in_equally_many_batches",
    ),
    Bug(
        "budget_of_a_step_exceeded_by_one",
        "data/batch_plan.py",
        "length[run] + budget",
        "length[run] + budget + 1",
        "data/test_batch_plan.py::test_no_step_has_more_source_or_more_target_tokens_than_its_budget",
    ),
    Bug(
        "budget_holds_for_the_source_only",
        "data/batch_plan.py",
        "for side in runs]\n    bounds",
        "for side in (runs.src,)]\n    bounds",
        "data/test_batch_plan.py::test_no_step_has_more_source_or_more_target_tokens_than_its_budget",
    ),
    Bug(
        "every_epoch_in_the_same_order",
        "data/batch_plan.py",
        "default_rng([self.seed, epoch])",
        "default_rng([self.seed])",
        "data/test_batch_plan.py::test_epochs_differ_in_the_order_of_steps_and_in_their_pairs",
    ),
    Bug(
        "every_rank_takes_the_same_micro_batches",
        "data/datamodule.py",
        "start * micro_batches + rank",
        "start * micro_batches",
        "data/test_batch_plan.py::test_all_ranks_together_see_every_pair_exactly_once_an_epoch_in_equally_many_batches",
    ),
    Bug(
        "a_continued_run_begins_at_the_first_batch_again",
        "data/datamodule.py",
        "MicroBatchSampler(trainer.global_step,",
        "MicroBatchSampler(0,",
        "data/test_datamodule.py::test_training_goes_on_at_the_step_where_the_trainer_stands_with_this_devices_parts",
    ),
    Bug(
        "target_not_shifted",
        "data/batch.py",
        "torch.cat([start, tgt_out[:, :-1]], dim=1)",
        "tgt_out",
        "data/test_batch.py::test_the_decoder_predicts_at_every_position_the_token_that_it_reads_at_the_next",
    ),
    Bug(
        "mean_of_means_in_the_loss",
        "training/module.py",
        "micro_batches / batch.step_tokens",
        "1 / max(batch.n_tokens, 1)",
        "training/test_module.py::test_the_micro_batches_of_a_step_add_up_to_the_mean_over_its_tokens_on_any_device",
    ),
    Bug(
        "accumulated_loss_not_scaled_back",
        "training/module.py",
        "micro_batches / batch.step_tokens",
        "1 / batch.step_tokens",
        "training/test_module.py::test_the_micro_batches_of_a_step_add_up_to_the_mean_over_its_tokens_on_any_device",
    ),
    Bug(
        "mean_of_means_in_the_validation",
        "training/callbacks/validate.py",
        "totals += torch.tensor([*map(float, sums), batch.n_tokens], dtype=torch.float64)",
        "totals += torch.tensor([*(float(s) / batch.n_tokens for s in sums), 1.0], dtype=torch.float64)",
        "training/test_validate.py::test_loss_and_perplexity_are_means_over_all_target_tokens_however_the_text_is_cut",
    ),
    Bug(
        "perplexity_of_the_smoothed_loss",
        "training/module.py",
        "self._loss(states, batch, 0.0)",
        "self._loss(states, batch, self.optim.label_smoothing)",
        "training/test_module.py::test_validation_sums_the_smoothed_loss_and_the_likelihood_over_real_tokens",
    ),
    Bug(
        "output_layer_learns_nothing",
        "training/module.py",
        "self.model.embedding.weight, batch.tgt_out",
        "self.model.embedding.weight.detach(), batch.tgt_out",
        "training/test_module.py::test_the_micro_batches_of_a_step_add_up_to_the_mean_over_its_tokens_on_any_device",
    ),
    Bug(
        "label_smoothing_over_all_other_classes",
        "training/loss.py",
        "label_smoothing / vocab_size * z.sum",
        "label_smoothing / (vocab_size - 1) * z.sum",
        "training/test_loss.py::test_however_many_rows_at_a_time_loss_and_gradients_are_those_of_all_logits_at_once",
    ),
    Bug(
        "padding_counts_in_the_loss",
        "training/loss.py",
        "real = targets != PAD_ID",
        "real = targets >= PAD_ID",
        "training/test_loss.py::test_padding_adds_nothing_to_the_loss_and_gets_no_gradient",
    ),
    Bug(
        "schedule_one_step_late",
        "training/module.py",
        "self.rate(done + 1)",
        "self.rate(max(done, 1))",
        "training/test_schedule.py::test_the_optimizers_first_step_has_the_rate_of_step_1_and_so_on",
    ),
    Bug(
        "exponent_of_the_warm_up",
        "training/schedule.py",
        "step * warmup_steps**-1.5)",
        "step * warmup_steps**-1)",
        "training/test_schedule.py::test_the_rate_is_equation_3",
    ),
    Bug(
        "gradient_that_is_not_finite_applied",
        "training/module.py",
        "optimizer.found_inf = bad.float()",
        "optimizer.found_inf = 0 * bad.float()",
        "faults/test_numbers.py::test_a_skipped_step_leaves_weights_and_moments_as_they_were_and_is_reported",
    ),
]

TEXT = [
    Bug(
        "lines_of_training_text_cut_by_splitlines",
        "data/text_files.py",
        "for line in stream:",
        "for line in stream.read().decode(errors='replace').splitlines():\n            line = line.encode()",
        "data/test_text_files.py::test_no_separator_but_lf_shifts_a_pair",
    ),
    Bug(
        "lines_of_evaluation_text_cut_by_splitlines",
        "data/text_files.py",
        "[decode(line, path, number) for number, line in enumerate(_lines(Path(path)), 1)]",
        "Path(path).read_text('utf-8').splitlines()",
        "data/test_text_files.py::"
        "test_lines_of_a_file_are_cut_at_lf_only_and_lose_one_carriage_return_and_the_mark_at_the_start",
    ),
    Bug(
        "blank_lines_dropped_on_one_side",
        "data/text_files.py",
        "zip(_lines(src), _lines(tgt), strict=True)",
        "zip((line for line in _lines(src) if line.strip()), _lines(tgt))",
        "data/test_text_files.py::test_a_blank_line_keeps_its_place_on_either_side",
    ),
    Bug(
        "count_of_lines_not_compared",
        "data/text_files.py",
        "if n_src != n_tgt:",
        "if False:",
        "data/test_text_files.py::test_unequal_line_counts_are_refused_before_the_first_pair_with_both_counts",
    ),
    Bug(
        "special_tokens_parsed_from_raw_text",
        "data/tokenizer.py",
        "core.encode_special_tokens = True",
        "core.encode_special_tokens = False",
        "data/test_tokenizer.py::test_hard_strings_survive_too",
    ),
    Bug(
        "size_of_the_vocabulary_not_checked",
        "data/tokenizer.py",
        "if learned < vocab_size:",
        "if False:",
        "data/test_tokenizer.py::test_a_vocabulary_beyond_the_text_is_refused_with_one_that_works",
    ),
    Bug(
        "validation_text_filtered_by_length",
        "data/prepare.py",
        'if split == "train":\n                keep =',
        "if split:\n                keep =",
        "data/test_prepare.py::test_length_rules_drop_training_pairs_only_and_the_report_adds_up",
    ),
    Bug(
        "bleu_of_tokenized_hypotheses",
        "evaluation/scoring.py",
        'return BLEU(), str, ""',
        'return BLEU(), partial(moses_tokenized, lang=lang), ""',
        "evaluation/test_scoring.py::"
        "test_sacrebleu_takes_the_text_as_it_is_and_leaves_typographic_quotes_to_their_words",
    ),
    Bug(
        "hypotheses_and_references_of_different_number",
        "evaluation/scoring.py",
        "if len(stream) != len(hypotheses):",
        "if False:",
        "evaluation/test_scoring.py::test_lines_that_do_not_belong_together_are_refused_with_both_counts",
    ),
]

FILES = [
    Bug(
        "save_straight_to_the_target",
        "files.py",
        'path.with_name(f".{path.name}.{os.getpid()}.part")',
        "path",
        "test_checkpoints.py::test_a_full_disk_leaves_the_old_file_and_nothing_else_and_says_what_is_needed",
    ),
    Bug(
        "name_given_before_the_bytes_are_on_the_disk",
        "files.py",
        "os.fsync(file.fileno())",
        "pass",
        "test_checkpoints.py::test_bytes_reach_the_disk_before_they_get_their_name_and_the_name_after",
    ),
    Bug(
        "checksum_not_verified",
        "checkpoints.py",
        "if MARK + hashlib.sha256(archive).hexdigest().encode() != seal:",
        "if False:",
        "test_checkpoints.py::test_every_flipped_bit_is_noticed",
    ),
    Bug(
        "weights_only_switched_off",
        "checkpoints.py",
        "weights_only=True)",
        "weights_only=False)",
        "test_checkpoints.py::test_files_made_to_run_code_are_refused_and_run_none_not_even_with_the_right_checksum",
    ),
    Bug(
        "oldest_good_checkpoint_instead_of_the_newest",
        "checkpoints.py",
        "for step in reversed(found):",
        "for step in found:",
        "test_checkpoints.py::test_the_newest_whole_checkpoint_is_found_with_its_optimizer",
    ),
    Bug(
        "steps_sorted_as_text",
        "checkpoints.py",
        "sorted(int(number) for number in numbers if number.isdigit())",
        "[int(number) for number in sorted(numbers) if number.isdigit()]",
        "test_checkpoints.py::test_steps_are_sorted_as_numbers_and_other_files_are_not_steps",
    ),
    Bug(
        "wrong_denominator_of_the_average",
        "checkpoints.py",
        "total / len(checkpoints)",
        "total / max(len(checkpoints) - 1, 1)",
        "test_checkpoints.py::test_an_average_is_the_arithmetic_mean_in_double_precision",
    ),
    Bug(
        "training_defining_option_taken_for_harmless",
        "options.py",
        '    "search.*",\n',
        '    "search.*",\n    "optim.*",\n',
        "test_config.py::test_exactly_the_options_that_shape_the_training_are_not_harmless",
    ),
    Bug(
        "changed_option_not_compared_where_it_was_null",
        "options.py",
        "if not is_harmless(key) and before.get(key) != now[key]]",
        "if not is_harmless(key) and before.get(key) and before[key] != now[key]]",
        "training/test_resume.py::test_a_change_of_any_option_that_defines_the_training_is_refused_with_both_values",
    ),
    Bug(
        "another_text_not_noticed",
        "training/resume.py",
        "checkpoint.corpus, prepared.fingerprint)",
        "checkpoint.corpus, checkpoint.corpus)",
        "training/test_resume.py::test_a_run_continues_on_its_own_corpus_and_vocabulary_and_is_refused_on_others",
    ),
    Bug(
        "another_vocabulary_of_the_same_size_not_noticed",
        "training/resume.py",
        "vocabulary.fingerprint, prepared.tokenizer.fingerprint)",
        "vocabulary.vocab_size, prepared.tokenizer.vocab_size)",
        "training/test_resume.py::test_a_run_continues_on_its_own_corpus_and_vocabulary_and_is_refused_on_others",
    ),
    Bug(
        "stored_configuration_read_as_code",
        "run_folder.py",
        "yaml.safe_load(self.config.read_text(",
        "yaml.unsafe_load(self.config.read_text(",
        "faults/test_secrets.py::test_a_manipulated_configuration_of_a_run_is_data_whoever_reads_it[tag]",
    ),
    Bug(
        "lock_of_the_run_folder_not_taken",
        "training/resume.py",
        "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        "training/test_run.py::test_a_run_folder_in_use_is_refused",
    ),
    Bug(
        "last_checkpoint_stays_the_one_before_after_a_kill",
        "training/run.py",
        "checkpoints.update_last(folder.checkpoints, checkpoints.saved_steps(folder.checkpoints)[-1])",
        "pass",
        "faults/test_kills.py::test_a_run_killed_at_a_chosen_moment_continues_to_the_bit"
        "[after the last checkpoint, before last.ckpt is it]",
    ),
    Bug(
        "signal_taken_for_a_flaw_of_a_checkpoint",
        "errors.py",
        "class InterruptedRunError(BaseException)",
        "class InterruptedRunError(UserError)",
        "faults/test_signals.py::test_a_signal_while_a_checkpoint_is_read_is_no_flaw_of_the_checkpoint",
    ),
    Bug(
        "signal_does_not_save",
        "training/callbacks/checkpoint_saver.py",
        "if stopping or due(",
        "if due(",
        "training/test_run.py::test_ctrl_c_saves_and_exits_with_130",
    ),
]

SEARCH = [
    Bug(
        "length_penalty_without_the_end_token",
        "inference/beam_search.py",
        "scores = (log_probs / length_penalty(length, config))",
        "scores = (log_probs / length_penalty(max(length - 1, 1), config))",
        "inference/test_beam_search.py::test_every_score_is_the_models_own_log_probability_of_the_output_with_its_end",
    ),
    Bug(
        "finished_hypotheses_compared_without_penalty",
        "inference/beam_search.py",
        "torch.cat([beams.finished_scores, scores], 1).topk(k)",
        "torch.cat([beams.finished_log_probs, log_probs.masked_fill(~ended, -torch.inf)], 1).topk(k)",
        "inference/test_beam_search.py::test_a_beam_wide_enough_finds_what_enumerating_all_outputs_finds",
    ),
    Bug(
        "finished_hypotheses_go_on",
        "inference/beam_search.py",
        "log_probs.masked_fill(ended, -torch.inf).topk(k)",
        "log_probs.topk(k)",
        "inference/test_beam_search.py::"
        "test_hypotheses_are_sorted_distinct_within_the_limit_and_free_of_special_tokens",
    ),
    Bug(
        "search_given_up_by_the_penalty_of_today",
        "inference/beam_search.py",
        "length_penalty(beams.limit + 1, config)",
        "length_penalty(length, config)",
        "inference/test_beam_search.py::test_a_sentence_is_not_given_up_while_a_long_output_can_still_win",
    ),
    Bug(
        "cache_not_reordered",
        "model/cache.py",
        "self.past = self.past.gather(1, parents[:, :, None, None].expand_as(self.past))",
        "pass",
        "model/test_cache.py::test_steps_equal_full_recomputation_while_beams_reorder_and_sentences_leave",
    ),
    Bug(
        "cache_reordered_by_the_wrong_parents",
        "inference/beam_search.py",
        "return extended, parents.gather(1, alive), sound",
        "return extended, parents[:, :k], sound",
        "inference/test_beam_search.py::test_every_score_is_the_models_own_log_probability_of_the_output_with_its_end",
    ),
    Bug(
        "translations_in_the_order_of_the_batches",
        "inference/translator.py",
        "for number, hypotheses in zip(batch, self._search",
        "for number, hypotheses in zip(sorted(batch), self._search",
        "inference/test_translator.py::test_every_line_comes_back_in_its_place_whatever_the_batches",
    ),
    Bug(
        "dropout_while_translating",
        "inference/translator.py",
        "self.model.eval()",
        "self.model.train()",
        "inference/test_translator.py::test_translating_ignores_dropout_and_leaves_the_model_in_the_mode_it_was_in",
    ),
    Bug(
        "eight_bit_rows_share_a_scale",
        "inference/int8.py",
        "x.abs().amax(-1, keepdim=True)",
        "x.abs().amax().expand(len(x), 1).clone()",
        "inference/test_int8.py::test_a_rows_largest_number_keeps_its_value_and_zeros_stay_zeros",
    ),
    Bug(
        "logits_of_sentences_that_left",
        "model/cache.py",
        "self.logits = self.logits[: len(sentences)]",
        "pass",
        "model/test_cache.py::test_steps_equal_full_recomputation_while_beams_reorder_and_sentences_leave",
    ),
]

BUGS = [*MODEL, *STEPS, *TEXT, *FILES, *SEARCH]

-- purpose: rule 8. What an ending owes: leave the sets, free the dedup key, tell the parent and the children, keep or delete the row, tell, count.
-- defines: finish
-- Ends a job as `kind`: kept on the `done` shelf if it asked for that, else the row goes. `what` is the row's field that
-- says how: its result, or a reason.
local function finish(id, row, kind, what, value)
  free_dedup(id, row)
  if ended then ended(id, row, kind, what == 'reason' and value or '', what == 'result' and value or '') end --!write finish-ended
  local ttl = tonumber(row.result_ttl_ms) or 0
  if ttl > 0 then
    place(id, row, 'done', NOW + ttl, 'kind', kind, what, value)
    call('HDEL', row_key(id), 'holder', 'cancel', 'hold') --!write done-holder
    kept_done, last_of_all = kept_done + 1, trim_shelves --!write shelf-done
  else
    erase(id, row.children)
    leave(id, row) --!write finish-leave
  end
  tell(id, row, kind)
  tally(kind)
end

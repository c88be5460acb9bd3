-- purpose: what is kept is bounded by age and number: whoever puts jobs on a shelf takes twice as many off it that are over.
-- defines: kept_done, kept_dead, trim_shelves
local kept_done, kept_dead = 0, 0 -- jobs that this call has put there
-- Drops up to so many results and dead; answers how many. Without a bound it is that of the call, whose last step it is.
-- `wanted` are limits in place of the queue's, false for each that is not given.
local function trim_shelves(bound, wanted)
  -- Nothing that died within a day goes for number alone, unless that number was asked for.
  local KEEP = wanted and wanted[2] and 0 or 86400000 --!guard keep-young
  local limits = call('HMGET', META, 'done_max', 'dead_max', 'dead_age')
  for i = 1, 3 do
    limits[i] = wanted and wanted[i] or limits[i] --!write wanted
  end
  local gone = 0
  local function trim(state, count, most, goes)
    local over = call('ZCARD', P .. state) - most
    local first = call('ZRANGE', P .. state, 0, count - 1, 'WITHSCORES') --!bound trim
    for i = 1, #first, 2 do
      local id, score = first[i], tonumber(first[i + 1])
      if not goes(score, over > 0) then return end --!guard trim-young
      over = over - 1 --!write trim-over
      erase(id, FLOWS)
      call('ZREM', P .. state, id) --!write trim-leave
      gone = gone + 1
      if state == 'dead' or score > NOW then --!guard trimmed
        tally('trimmed')
        emit('trimmed', id, 'state', state)
      end
    end
  end
  -- Results go when their time is over; the soonest to go, when there are too many.
  local of_done = bound or 2 * kept_done
  if of_done > 0 then
    trim('done', of_done, tonumber(limits[1]) or 100000, function(till, over)
      return over or till <= NOW --!guard trim-done
    end)
  end
  -- The oldest dead go when they are too old, or too many.
  local of_dead = bound and bound - gone or 2 * kept_dead
  if of_dead > 0 then
    local oldest = NOW - (tonumber(limits[3]) or 7776000000)
    trim('dead', of_dead, tonumber(limits[2]) or 10000, function(died, over)
      return died <= oldest or over and died <= NOW - KEEP --!guard trim-dead
    end)
  end
  return gone
end

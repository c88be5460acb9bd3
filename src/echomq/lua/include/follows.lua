-- purpose: whether a completion brings follow-up jobs, which may be a queue's first of a lane or flow.
-- defines: nothing; sets MAY_FLOW and MAY_BEGIN
for at = 7, #ARGV, 5 do
  if ARGV[at] ~= '' then
    MAY_FLOW, MAY_BEGIN = true, true
    break
  end
end
